//! What stands between client and store: TLS, and servers with manners of their own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use duolog_s3client::answer::Written;
use duolog_s3client::bucket::Addressing;
use duolog_s3client::transport::Trust;
use duolog_s3client::{Client, Error, Remedy, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::embedded::{server, settings, settings_with};
use crate::words::{key, text};

/// The certificate of `localhost`, from an authority that only these tests know. Good until 2126.
const CERTIFICATE: &[u8] = include_bytes!("../data/tls/server.pem");
const PRIVATE_KEY: &[u8] = include_bytes!("../data/tls/server.key");
const AUTHORITY: &[u8] = include_bytes!("../data/tls/authority.pem");

/// Speaks TLS and passes on what it hears.
async fn tls_before(store: SocketAddr) -> SocketAddr {
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
    let private_key = PrivateKeyDer::from_pem_slice(PRIVATE_KEY).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], private_key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            // A client that does not like the certificate hangs up.
            let Ok(mut client) = acceptor.accept(socket).await else { continue };
            let mut store = TcpStream::connect(store).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut client, &mut store).await });
        }
    });
    address
}

fn encrypted(host: &str, address: SocketAddr, trust: Trust) -> Client {
    let url = format!("https://{host}:{}", address.port());
    let settings = settings_with(&url, "duolog-dev-secret", Addressing::Path);
    let (retry, connect_to) = (Some(Duration::ZERO), Some(address));
    Client::new(Settings { trust, retry, connect_to, ..settings }).unwrap()
}

/// A private authority is trusted when it is given, and only then; a certificate of another host
/// is not taken. Each failure says which setting would mend it, and nothing has been sent.
#[tokio::test]
async fn certificates_are_checked_and_a_failure_names_the_setting() {
    let server = server();
    let address = tls_before(server.address()).await;
    let trusting = || Trust::Also(AUTHORITY.to_vec());
    let fine = encrypted("localhost", address, trusting());
    let stored = fine.put_if_absent(&key("a"), text("1")).await.unwrap();
    assert!(matches!(stored, Written::Stored { .. }), "{stored:?}");
    server.faults().take_seen();
    for (client, words) in [
        (encrypted("localhost", address, Trust::System), "set s3.ca_file"),
        (encrypted("elsewhere.test", address, trusting()), "correct s3.endpoint"),
        (encrypted("localhost", server.address(), trusting()), "speaks no TLS"),
    ] {
        let refused = client.put_if_absent(&key("b"), text("1")).await.unwrap_err();
        assert!(matches!(refused, Error::NotReached { .. }), "{refused}");
        assert!(matches!(refused.remedy(), Remedy::FixConfig(_)), "{refused}");
        assert!(refused.to_string().contains(words), "{refused}");
    }
    assert_eq!(server.faults().take_seen(), []);
}

/// Interim answers that nobody asked for come before the real one.
#[tokio::test]
async fn interim_answers_are_not_the_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(b"the body") {
            assert!(socket.read_buf(&mut heard).await.unwrap() > 0, "the request was cut");
        }
        let answers = [
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n",
            "HTTP/1.1 200 OK\r\netag: \"e\"\r\ncontent-length: 0\r\n\r\n",
        ];
        for answer in answers {
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let client = Client::new(settings(&url)).unwrap();
    let stored = client.put_if_absent(&key("a"), text("the body")).await.unwrap();
    assert!(
        matches!(&stored, Written::Stored { etag } if etag.as_given() == "\"e\""),
        "{stored:?}"
    );
}
