//! S3's operations over the [`Store`], exact or, if a test wants it, with a [`Lie`].

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use futures_lite::StreamExt;
use s3s::dto::{
    Bucket, CreateBucketInput, CreateBucketOutput, DeleteObjectInput, DeleteObjectOutput, ETag,
    ETagCondition, EncodingType, GetBucketVersioningInput, GetBucketVersioningOutput,
    GetObjectInput, GetObjectOutput, HeadBucketInput, HeadBucketOutput, HeadObjectInput,
    HeadObjectOutput, ListBucketsInput, ListBucketsOutput, ListObjectsV2Input, ListObjectsV2Output,
    Object, PutObjectInput, PutObjectOutput, StreamingBlob, Timestamp,
};
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};

use crate::clock;
use crate::faults::{Faults, Lie};
use crate::store::{Expect, Store, StoreError, Stored};

/// Keys on a page of a listing, at most and unless told otherwise.
const PAGE_KEYS_MAX: usize = 1000;

pub(crate) struct Backend {
    pub(crate) store: Arc<Store>,
    pub(crate) faults: Faults,
}

fn refuse(error: StoreError) -> s3s::S3Error {
    match error {
        StoreError::NoBucket(_) => s3_error!(NoSuchBucket, "{error}"),
        StoreError::NoObject(_) => s3_error!(NoSuchKey, "{error}"),
        StoreError::Condition => s3_error!(PreconditionFailed, "{error}"),
        StoreError::Disk { .. } => s3_error!(InternalError, "{error}"),
    }
}

fn timestamp(at_ms: i64) -> Timestamp {
    let since = Duration::from_millis(u64::try_from(at_ms).unwrap_or_default());
    Timestamp::from(SystemTime::UNIX_EPOCH + since)
}

fn etag(stored: &Stored) -> Option<ETag> {
    Some(ETag::Strong(stored.etag.clone()))
}

/// One whole body as the stream that s3s wants.
fn blob(body: Bytes) -> StreamingBlob {
    StreamingBlob::from(s3s::Body::from(body))
}

/// The conditions of a write as they should be judged.
fn expect(
    if_match: Option<&ETagCondition>,
    if_none_match: Option<&ETagCondition>,
) -> S3Result<Expect> {
    match (if_match, if_none_match) {
        (None, None) => Ok(Expect::Anything),
        (None, Some(ETagCondition::Any)) => Ok(Expect::Absent),
        (Some(ETagCondition::Any), None) => Ok(Expect::Present),
        (Some(ETagCondition::ETag(ETag::Strong(etag))), None) => Ok(Expect::ETag(etag.clone())),
        (Some(ETagCondition::ETag(ETag::Weak(_))), None) => {
            Err(s3_error!(PreconditionFailed, "a weak ETag matches nothing"))
        }
        _ => Err(s3_error!(NotImplemented, "this combination of conditions does not exist")),
    }
}

impl Backend {
    /// What the lie makes of a write's condition.
    fn twist(&self, lie: Lie, expect: Expect, bucket: &str, key: &str) -> S3Result<Expect> {
        let missing = matches!(self.store.get(bucket, key), Err(StoreError::NoObject(_)));
        Ok(match (lie, expect) {
            (Lie::IgnoreConditions, _) => Expect::Anything,
            (Lie::IgnoreIfMatch, Expect::ETag(_) | Expect::Present) => Expect::Anything,
            (Lie::IgnoreIfNoneMatch, Expect::Absent) => Expect::Anything,
            (Lie::InvertIfNoneMatch, Expect::Absent) if missing => {
                return Err(refuse(StoreError::Condition));
            }
            (Lie::InvertIfNoneMatch, Expect::Absent) => Expect::Anything,
            (Lie::CreateOnIfMatch, Expect::ETag(_)) if missing => Expect::Anything,
            (Lie::NotImplemented, Expect::Absent | Expect::ETag(_) | Expect::Present) => {
                return Err(s3_error!(NotImplemented, "conditional writes do not exist here"));
            }
            (_, expect) => expect,
        })
    }
}

async fn whole(body: Option<StreamingBlob>) -> S3Result<Bytes> {
    let mut bytes = BytesMut::new();
    if let Some(mut body) = body {
        while let Some(chunk) = body.next().await {
            bytes.extend_from_slice(&chunk.map_err(|error| s3_error!(IncompleteBody, "{error}"))?);
        }
    }
    Ok(bytes.freeze())
}

#[async_trait::async_trait]
impl S3 for Backend {
    async fn put_object(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let input = request.input;
        let expect = expect(input.if_match.as_ref(), input.if_none_match.as_ref())?;
        let lie = self.faults.current_lie();
        let if_match = request.headers.get("if-match");
        let quoted = if_match.map(|value| value.as_bytes().starts_with(b"\""));
        if matches!(
            (lie, quoted),
            (Lie::QuotedNeverMatches, Some(true)) | (Lie::UnquotedNeverMatches, Some(false))
        ) {
            return Err(refuse(StoreError::Condition));
        }
        let (bucket, key) = (&input.bucket, &input.key);
        let early = matches!(lie, Lie::JudgeBeforeBody);
        if early {
            self.store.judge(bucket, key, &expect).map_err(refuse)?;
        }
        let body = whole(input.body).await?;
        // A client that announced more than it sent has not sent an object.
        let announced = input.content_length.and_then(|length| usize::try_from(length).ok());
        if announced.is_some_and(|length| length != body.len()) {
            return Err(s3_error!(IncompleteBody));
        }
        let mut expect = self.twist(lie, expect, bucket, key)?;
        if let Lie::GapMs(gap_ms) = lie {
            self.store.judge(bucket, key, &expect).map_err(refuse)?;
            tokio::time::sleep(Duration::from_millis(gap_ms)).await;
        }
        if early || matches!(lie, Lie::GapMs(_)) {
            expect = Expect::Anything;
        }
        let stored = self.store.put(bucket, key, body, &expect).map_err(refuse)?;
        let output = PutObjectOutput { e_tag: etag(&stored), ..PutObjectOutput::default() };
        Ok(S3Response::new(output))
    }

    async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let input = request.input;
        let stored = self.store.get(&input.bucket, &input.key).map_err(refuse)?;
        Ok(S3Response::new(GetObjectOutput {
            content_length: i64::try_from(stored.body.len()).ok(),
            e_tag: etag(&stored),
            last_modified: Some(timestamp(stored.modified_ms)),
            body: Some(blob(stored.body)),
            ..GetObjectOutput::default()
        }))
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let input = request.input;
        let stored = self.store.get(&input.bucket, &input.key).map_err(refuse)?;
        Ok(S3Response::new(HeadObjectOutput {
            content_length: i64::try_from(stored.body.len()).ok(),
            e_tag: etag(&stored),
            last_modified: Some(timestamp(stored.modified_ms)),
            ..HeadObjectOutput::default()
        }))
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let input = request.input;
        let expect = expect(input.if_match.as_ref(), None)?;
        if self.faults.current_lie() != Lie::KeepDeleted {
            self.store.delete(&input.bucket, &input.key, &expect).map_err(refuse)?;
        }
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = request.input;
        if input.delimiter.is_some() {
            return Err(s3_error!(NotImplemented, "listings with a delimiter do not exist here"));
        }
        let prefix = input.prefix.clone().unwrap_or_default();
        // A token is the last key of the page before, in digits, so that it looks like nothing.
        let after = match &input.continuation_token {
            Some(token) => read_token(token).ok_or_else(|| s3_error!(InvalidArgument))?,
            None => input.start_after.clone().unwrap_or_default(),
        };
        let limit = input.max_keys.and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.unwrap_or(PAGE_KEYS_MAX).min(PAGE_KEYS_MAX);
        let page = self.store.list(&input.bucket, &prefix, &after, limit);
        let (mut page, mut more) = page.map_err(refuse)?;
        more &= limit > 0;
        let next = page.last().filter(|_| more).map(|(key, _)| write_token(key));
        match self.faults.current_lie() {
            Lie::ListLateMs(late_ms) => {
                let seen_ms = clock::wall_ms() - i64::try_from(late_ms).unwrap_or(i64::MAX);
                page.retain(|(_, stored)| stored.modified_ms <= seen_ms);
            }
            Lie::ListCut => more = false,
            _ => {}
        }
        let url = input.encoding_type.as_ref().is_some_and(|kind| kind.as_str() == "url");
        let contents = page.iter().map(|(key, stored)| Object {
            key: Some(if url { percent(key) } else { key.clone() }),
            e_tag: etag(stored),
            size: i64::try_from(stored.body.len()).ok(),
            last_modified: Some(timestamp(stored.modified_ms)),
            ..Object::default()
        });
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: Some(prefix),
            max_keys: i32::try_from(limit).ok(),
            key_count: i32::try_from(page.len()).ok(),
            is_truncated: Some(more),
            next_continuation_token: next.filter(|_| more),
            contents: Some(contents.collect()),
            encoding_type: url.then(|| EncodingType::from_static(EncodingType::URL)),
            ..ListObjectsV2Output::default()
        }))
    }

    async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        match self.store.has_bucket(&request.input.bucket) {
            true => Ok(S3Response::new(HeadBucketOutput::default())),
            false => Err(s3_error!(NoSuchBucket)),
        }
    }

    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        self.store.create_bucket(&request.input.bucket).map_err(refuse)?;
        Ok(S3Response::new(CreateBucketOutput::default()))
    }

    async fn list_buckets(
        &self,
        _request: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        let names = self.store.bucket_names().into_iter();
        let buckets = names.map(|name| Bucket { name: Some(name), ..Bucket::default() });
        let buckets = Some(buckets.collect());
        Ok(S3Response::new(ListBucketsOutput { buckets, ..ListBucketsOutput::default() }))
    }

    async fn get_bucket_versioning(
        &self,
        _request: S3Request<GetBucketVersioningInput>,
    ) -> S3Result<S3Response<GetBucketVersioningOutput>> {
        Ok(S3Response::new(GetBucketVersioningOutput::default()))
    }
}

fn percent(key: &str) -> String {
    key.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(byte));
            }
            // As AWS does it.
            b' ' => out.push('+'),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
        out
    })
}

fn write_token(key: &str) -> String {
    key.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn read_token(token: &str) -> Option<String> {
    let digits = token.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    String::from_utf8(digits.map(byte).collect::<Option<_>>()?).ok()
}
