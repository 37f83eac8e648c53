//! Client and session against each other, over a store in memory and connections that are cut.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use duolog_engine::append::AppendView;
use duolog_engine::record::{EventParts, encode_event};
use duolog_net::client::{Client, Copies, Event, Expect, Hlc, LeaseEpoch, Lsn, Revision, ShardId};
use duolog_net::session::{Answers, Flow, Request, Session, Settings, Ticket};
use duolog_net::wire::{
    Appended, Direction, ErrorCode, ErrorFrame, LogPage, LogTail, ReadLog, ReadStream, StreamPage,
    StreamSpan, StreamTail, encode_admin_answer,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Events of one page at most, so that small streams have several.
const PAGE_EVENTS: usize = 7;

/// A log in memory: enough of one to tell whether an append was done once.
#[derive(Default)]
struct Store {
    records: Vec<Vec<u8>>,
    streams: BTreeMap<Vec<u8>, Vec<usize>>,
    keys: BTreeMap<u128, (Appended, Vec<StreamSpan>)>,
}

impl Store {
    fn serve(&mut self, ticket: Ticket, request: Request<'_>, answers: &mut Answers) {
        match request {
            Request::Append(body) => self.append(ticket, body, answers),
            Request::ReadStream(read) => answers.answer(ticket, |out, correlation| {
                self.read_stream(&read, out, correlation);
            }),
            Request::Subscribe(_) => {
                let error = ErrorFrame::new(ErrorCode::BadRequest);
                answers.refuse(ticket, &error, "no subscriptions here");
            }
            Request::Admin(json) => {
                answers.answer(ticket, |out, number| encode_admin_answer(out, number, json));
            }
            Request::ReadLog(read) => answers.answer(ticket, |out, correlation| {
                self.read_log(&read, out, correlation);
            }),
        }
    }

    fn append(&mut self, ticket: Ticket, body: &[u8], answers: &mut Answers) {
        let append = match AppendView::parse(body, 1 << 20) {
            Ok(append) => append,
            Err(error) => return answers.refuse(ticket, &ErrorFrame::from(&error), &error),
        };
        if let Some((receipt, spans)) = append.key().and_then(|key| self.keys.get(&key.0)) {
            let replayed = Appended { replayed: true, ..*receipt };
            return answers.appended(ticket, &replayed, spans.iter().copied());
        }
        for (index, stream) in (0..).zip(append.streams()) {
            let next = Revision(self.streams.get(stream.name).map_or(0, Vec::len) as u64);
            if !stream.expect.holds(next) {
                let conflict = ErrorFrame::conflict(index, stream.expect, next);
                return answers.refuse(ticket, &conflict, "not as expected");
            }
        }
        let first_lsn = Lsn(self.records.len() as u64 + 1);
        let (mut spans, mut events) = (Vec::new(), append.events());
        for stream in append.streams().filter(|stream| stream.event_count > 0) {
            let places = self.streams.entry(stream.name.to_owned()).or_default();
            let first = Revision(places.len() as u64);
            for event in events.by_ref().take(stream.event_count as usize) {
                let mut record = Vec::new();
                encode_event(
                    &mut record,
                    &EventParts {
                        lsn: Lsn(self.records.len() as u64 + 1),
                        revision: Revision(places.len() as u64),
                        hlc: Hlc(1 << 16),
                        id: event.id,
                        stream: stream.name,
                        type_length: event.kind.len() as u8,
                        metadata_length: event.metadata.len() as u32,
                        body: event.body,
                    },
                );
                places.push(self.records.len());
                self.records.push(record);
            }
            spans.push(StreamSpan { first, event_count: stream.event_count });
        }
        let receipt = Appended {
            first_lsn,
            last_lsn: Lsn(self.records.len() as u64),
            hlc: Hlc(1 << 16),
            epoch: LeaseEpoch(0),
            shard: ShardId(0),
            copies: Copies::ThisDisk,
            replayed: false,
        };
        if let Some(key) = append.key() {
            self.keys.insert(key.0, (receipt, spans.clone()));
        }
        answers.appended(ticket, &receipt, spans);
    }

    fn read_stream(&self, read: &ReadStream<'_>, out: &mut Vec<u8>, correlation: u64) {
        let places = self.streams.get(read.stream.as_bytes()).map_or(&[][..], Vec::as_slice);
        let from = usize::try_from(read.from.0).unwrap_or(usize::MAX);
        let mut page = StreamPage::begin(out, correlation);
        let (end, next) = match read.direction {
            Direction::Forwards => {
                let from = from.min(places.len());
                let until = places.len().min(from + PAGE_EVENTS);
                for place in &places[from..until] {
                    page.push(out, &self.records[*place]);
                }
                (until == places.len(), until)
            }
            Direction::Backwards => {
                let until = places.len().min(from.saturating_add(1));
                let from = until.saturating_sub(PAGE_EVENTS);
                for place in places[from..until].iter().rev() {
                    page.push(out, &self.records[*place]);
                }
                (from == 0, from.saturating_sub(1))
            }
        };
        page.finish_stream(
            out,
            &StreamTail {
                next: Revision(next as u64),
                stream_next: Revision(places.len() as u64),
                committed: Lsn(self.records.len() as u64),
                end,
            },
        );
    }

    fn read_log(&self, read: &ReadLog, out: &mut Vec<u8>, correlation: u64) {
        let from = self.records.len().min(read.from.0 as usize - 1);
        let until = self.records.len().min(from + PAGE_EVENTS);
        let mut page = LogPage::begin(out, correlation);
        for record in &self.records[from..until] {
            page.push(out, record);
        }
        let committed = Lsn(self.records.len() as u64);
        let tail =
            LogTail { next: Lsn(until as u64 + 1), committed, end: until == self.records.len() };
        page.finish_log(out, &tail);
    }
}

/// Serves one connection until the client closes it, or until `cut_after` requests were done,
/// the last of them without an answer.
async fn serve(mut stream: TcpStream, store: Rc<RefCell<Store>>, cut_after: usize) {
    let mut session = Session::new(Settings::default());
    let (mut bytes, mut done) = (vec![0; 512], 0);
    loop {
        let Ok(count @ 1..) = stream.read(&mut bytes).await else { return };
        let flow = session.receive(&bytes[..count], &mut |ticket, request, answers| {
            done += 1;
            store.borrow_mut().serve(ticket, request, answers);
        });
        session.check();
        assert_eq!(flow, Flow::Read, "this client does nothing wrong");
        if done >= cut_after {
            return;
        }
        let mut out = Vec::new();
        session.answers().take_unsent(&mut out);
        if stream.write_all(&out).await.is_err() {
            return;
        }
        session.answers().sent(out.len());
    }
}

/// A server whose connections are cut after more and more requests, by `pattern` in turn.
async fn start(pattern: &'static [usize]) -> (String, Rc<RefCell<Store>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound port").to_string();
    let store = Rc::new(RefCell::new(Store::default()));
    let shared = Rc::clone(&store);
    tokio::task::spawn_local(async move {
        for cut_after in pattern.iter().cycle() {
            let (stream, _) = listener.accept().await.expect("accept");
            tokio::task::spawn_local(serve(stream, Rc::clone(&shared), *cut_after));
        }
    });
    (address, store)
}

#[tokio::test]
async fn keyed_appends_over_cut_connections_are_done_exactly_once() {
    tokio::task::LocalSet::new()
        .run_until(async {
            let (address, store) = start(&[3, 40, 5, 9, 17, 2]).await;
            let client = Client::connect(&address).await.unwrap();
            let appends: Vec<_> = (0..300)
                .map(|number: u32| {
                    let event = Event::new("n", number.to_le_bytes());
                    let stream = format!("s{}", number % 10);
                    tokio::spawn(client.append(stream).event(event).retry().send())
                })
                .collect();
            let mut lsns = Vec::new();
            for append in appends {
                let receipt = append.await.unwrap().unwrap();
                lsns.push(receipt.first_lsn.0);
            }
            lsns.sort_unstable();
            assert_eq!(lsns, (1..=300).collect::<Vec<_>>());
            assert_eq!(store.borrow().records.len(), 300);

            let mut read = client.read_log(ShardId(0), Lsn(1));
            let mut numbers = Vec::new();
            while let Some(event) = read.next().await.unwrap() {
                numbers.push(u32::from_le_bytes(event.data.try_into().unwrap()));
            }
            numbers.sort_unstable();
            assert_eq!(numbers, (0..300).collect::<Vec<_>>());
        })
        .await;
}

#[tokio::test]
async fn streams_are_read_both_ways_over_pages() {
    tokio::task::LocalSet::new()
        .run_until(async {
            let (address, _store) = start(&[usize::MAX]).await;
            let client = Client::connect(&address).await.unwrap();
            let events = (0..20_u8).map(|number| Event::new("n", [number]));
            let receipt =
                client.append("s").events(events).expect(Expect::NoStream).send().await.unwrap();
            assert_eq!(receipt.next_expect(), Expect::Exact(Revision(19)));
            let again = client.append("s").event(Event::new("n", "")).expect(Expect::NoStream);
            assert!(again.send().await.is_err());
            for backwards in [false, true] {
                let read = client.read("s");
                let mut read = if backwards { read.backwards() } else { read };
                let mut numbers = Vec::new();
                while let Some(event) = read.next().await.unwrap() {
                    numbers.push(event.data[0]);
                }
                if backwards {
                    numbers.reverse();
                }
                assert_eq!(numbers, (0..20).collect::<Vec<_>>());
            }
            assert_eq!(client.read("none").next().await, Ok(None));
        })
        .await;
}
