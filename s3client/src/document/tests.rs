//! Documents as servers really send them, and as they should not.

use super::*;
use proptest::prelude::*;

const NAMESPACE: &str = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";

fn list(inside: &str) -> Result<ListPage, DocumentError> {
    let document = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult {NAMESPACE}>\
         <KeyCount>1</KeyCount>{inside}</ListBucketResult>"
    );
    parse_list(document.as_bytes())
}

fn keys(inside: &str) -> Vec<String> {
    list(inside).unwrap().objects.into_iter().map(|object| object.key).collect()
}

#[test]
fn entities_references_and_cdata_come_out_as_the_key() {
    let contents = "<Contents><Key>a&amp;b&lt;c&quot;d&#x2B;e&#43;f&apos;</Key></Contents>\
        <Contents><Key><![CDATA[x<&>y]]></Key></Contents>\
        <Contents>\n  <Key>sp ace+%20</Key>\n  <Size>7</Size>\n</Contents>";
    assert_eq!(keys(contents), ["a&b<c\"d+e+f'", "x<&>y", "sp ace+%20"]);
}

#[test]
fn url_encoding_is_taken_back_only_where_the_server_says_so() {
    let contents = "<Contents><Key>a%2Bb+c%2520</Key></Contents>";
    assert_eq!(keys(contents), ["a%2Bb+c%2520"]);
    assert_eq!(keys(&format!("<EncodingType>url</EncodingType>{contents}")), ["a+b c%20"]);
    let broken = "<Contents><Key>%zz</Key></Contents><EncodingType>url</EncodingType>";
    assert!(list(broken).is_err());
}

#[test]
fn prefixes_attributes_and_empty_elements_do_no_harm() {
    let document = "<s3:ListBucketResult xmlns:s3=\"x\" a=\"b\"><s3:KeyCount/><s3:Prefix/>\
        <s3:Contents z=\"1\"><s3:Key>k</s3:Key><s3:ETag>&quot;e&quot;</s3:ETag>\
        <s3:Owner><s3:ID>Key</s3:ID></s3:Owner></s3:Contents></s3:ListBucketResult>";
    let page = parse_list(document.as_bytes()).unwrap();
    assert_eq!(page.objects.len(), 1);
    assert_eq!(page.objects[0].key, "k");
    assert_eq!(page.objects[0].etag, Some(ETag::new("\"e\"").unwrap()));
}

#[test]
fn a_page_says_how_to_go_on() {
    let page = list(
        "<IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;=</NextContinuationToken>",
    );
    assert_eq!(page.unwrap().next.as_deref(), Some("t&="));
    let last =
        list("<IsTruncated>false</IsTruncated><NextContinuationToken>t</NextContinuationToken>");
    assert_eq!(last.unwrap().next, None);
}

#[test]
fn a_listing_that_cannot_be_continued_is_never_complete() {
    assert_eq!(list("<IsTruncated>true</IsTruncated>"), Err(DocumentError::NoContinuation));
    let version_1 = "<ListBucketResult><Marker></Marker><IsTruncated>true</IsTruncated>\
        <NextMarker>k</NextMarker></ListBucketResult>";
    assert_eq!(parse_list(version_1.as_bytes()), Err(DocumentError::ListVersion1));
}

#[test]
fn a_cut_or_foreign_document_is_an_error() {
    let whole = "<ListBucketResult><Contents><Key>k</Key></Contents></ListBucketResult>";
    assert!(parse_list(whole.as_bytes()).is_ok());
    for end in 0..whole.len() {
        assert!(parse_list(&whole.as_bytes()[..end]).is_err(), "{}", &whole[..end]);
    }
    for foreign in ["", "{}", "<html><body/></html>", "<Error><Code>x</Code></Error>", "\u{0}"] {
        assert!(parse_list(foreign.as_bytes()).is_err(), "{foreign}");
    }
    let size = "<Contents><Key>k</Key><Size>-1</Size></Contents>";
    assert!(matches!(list(size), Err(DocumentError::Malformed { .. })));
    assert!(list("<Contents><Key>&unknown;</Key></Contents>").is_err());
}

#[test]
fn an_error_document_is_recognised_and_nothing_else() {
    let document = "\u{feff}<?xml version=\"1.0\"?>\n<Error><Code> SlowDown </Code><Message/>\
        <RequestId>r</RequestId><HostId>h</HostId></Error>";
    let expected = ErrorDocument {
        code: Some("SlowDown".to_owned()),
        request_id: Some("r".to_owned()),
        ..ErrorDocument::default()
    };
    assert_eq!(parse_error(document.as_bytes()), Some(expected));
    for other in ["", " ", "{\"Error\":1}", "<html/>", "<Errors/>", "<Error>", "text <Error/>"] {
        assert_eq!(parse_error(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn versioning_is_enabled_suspended_or_never() {
    let read = |inside: &str| {
        let document =
            format!("<VersioningConfiguration {NAMESPACE}>{inside}</VersioningConfiguration>");
        parse_versioning(document.as_bytes()).unwrap()
    };
    assert_eq!(read("<Status>Enabled</Status>").as_deref(), Some("Enabled"));
    assert_eq!(read(""), None);
    assert!(parse_versioning(b"<Error/>").is_err());
}

proptest! {
    #[test]
    fn no_bytes_panic(body in proptest::collection::vec(any::<u8>(), 0..200), inside in ".{0,80}") {
        let _ = (parse_error(&body), parse_list(&body), parse_versioning(&body), list(&inside));
    }

    #[test]
    fn any_key_survives_a_listing(key in "[^\u{0}-\u{1f}\u{fffe}\u{ffff}]{1,40}") {
        let escaped = key.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        prop_assert_eq!(
            keys(&format!("<Contents><Key>{escaped}</Key></Contents>")),
            [key]
        );
    }
}
