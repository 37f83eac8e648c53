//! Buckets and objects, in memory, with a copy on disk if asked for.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use md5::{Digest, Md5};

use crate::clock;

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its content.
    pub body: Bytes,
    /// MD5 of the content in hexadecimal digits, without quotes.
    pub etag: String,
    /// When it was stored, milliseconds since 1970.
    pub modified_ms: i64,
}

/// What a write expects of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    Anything,
    Absent,
    /// Some version.
    Present,
    ETag(String),
}

/// Why the store did not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No such bucket.
    #[error("there is no bucket {0:?}")]
    NoBucket(String),
    /// No such object.
    #[error("there is no object {0:?}")]
    NoObject(String),
    /// The condition did not hold.
    #[error("the condition does not hold")]
    Condition,
    /// The disk.
    #[error("{path}: {source}")]
    Disk {
        /// Where.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
}

type Objects = BTreeMap<String, Stored>;

/// All buckets.
#[derive(Debug)]
pub(crate) struct Store {
    buckets: Mutex<BTreeMap<String, Objects>>,
    dir: Option<PathBuf>,
}

impl Store {
    pub(crate) fn open(dir: Option<PathBuf>, buckets: &[String]) -> Result<Self, StoreError> {
        let mut found = BTreeMap::new();
        if let Some(dir) = &dir {
            create_dir(dir)?;
            for entry in list(dir)? {
                if let (true, Some(name)) = (entry.is_dir(), entry.file_name()) {
                    found.insert(name.to_string_lossy().into_owned(), load(&entry)?);
                }
            }
        }
        let store = Self { buckets: Mutex::new(found), dir };
        buckets.iter().try_for_each(|bucket| store.create_bucket(bucket))?;
        Ok(store)
    }

    fn buckets(&self) -> MutexGuard<'_, BTreeMap<String, Objects>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn create_bucket(&self, bucket: &str) -> Result<(), StoreError> {
        if let Some(dir) = &self.dir {
            create_dir(&dir.join(bucket))?;
        }
        self.buckets().entry(bucket.to_owned()).or_default();
        Ok(())
    }

    pub(crate) fn bucket_names(&self) -> Vec<String> {
        self.buckets().keys().cloned().collect()
    }

    pub(crate) fn has_bucket(&self, bucket: &str) -> bool {
        self.buckets().contains_key(bucket)
    }

    pub(crate) fn get(&self, bucket: &str, key: &str) -> Result<Stored, StoreError> {
        let buckets = self.buckets();
        let found = objects(&buckets, bucket)?.get(key).cloned();
        found.ok_or_else(|| StoreError::NoObject(key.to_owned()))
    }

    /// Judges the condition against the object as it is now.
    pub(crate) fn judge(&self, bucket: &str, key: &str, expect: &Expect) -> Result<(), StoreError> {
        judge(objects(&self.buckets(), bucket)?, key, expect)
    }

    /// Judges the condition and replaces the object, with nothing in between.
    pub(crate) fn put(
        &self,
        bucket: &str,
        key: &str,
        body: Bytes,
        expect: &Expect,
    ) -> Result<Stored, StoreError> {
        let etag = Md5::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
        let stored = Stored { body, etag, modified_ms: clock::wall_ms() };
        let mut buckets = self.buckets();
        judge(objects(&buckets, bucket)?, key, expect)?;
        if let Some(dir) = &self.dir {
            write(&dir.join(bucket), key, &stored.body)?;
        }
        buckets.entry(bucket.to_owned()).or_default().insert(key.to_owned(), stored.clone());
        Ok(stored)
    }

    pub(crate) fn delete(
        &self,
        bucket: &str,
        key: &str,
        expect: &Expect,
    ) -> Result<(), StoreError> {
        let mut buckets = self.buckets();
        judge(objects(&buckets, bucket)?, key, expect)?;
        if let Some(dir) = &self.dir {
            let path = dir.join(bucket).join(file_name(key));
            match std::fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(StoreError::Disk { path, source });
                }
                _ => {}
            }
        }
        buckets.entry(bucket.to_owned()).or_default().remove(key);
        Ok(())
    }

    /// At most `limit` objects whose keys begin with `prefix` and come after `after`, in the order
    /// of their bytes, and whether there are more.
    pub(crate) fn list(
        &self,
        bucket: &str,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<(Vec<(String, Stored)>, bool), StoreError> {
        let buckets = self.buckets();
        let behind = objects(&buckets, bucket)?
            .range::<str, _>((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded));
        let mut found = behind.filter(|(key, _)| key.starts_with(prefix));
        let pair = |(key, stored): (&String, &Stored)| (key.clone(), stored.clone());
        let page = found.by_ref().take(limit).map(pair).collect();
        Ok((page, found.next().is_some()))
    }
}

fn objects<'a>(
    buckets: &'a BTreeMap<String, Objects>,
    bucket: &str,
) -> Result<&'a Objects, StoreError> {
    buckets.get(bucket).ok_or_else(|| StoreError::NoBucket(bucket.to_owned()))
}

fn judge(objects: &Objects, key: &str, expect: &Expect) -> Result<(), StoreError> {
    match (expect, objects.get(key)) {
        (Expect::Anything, _) | (Expect::Absent, None) | (Expect::Present, Some(_)) => Ok(()),
        (Expect::ETag(etag), Some(stored)) if stored.etag == *etag => Ok(()),
        (Expect::Absent | Expect::ETag(_), Some(_)) => Err(StoreError::Condition),
        (Expect::ETag(_) | Expect::Present, None) => Err(StoreError::NoObject(key.to_owned())),
    }
}

fn disk(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Disk { path, source }
}

fn create_dir(path: &Path) -> Result<(), StoreError> {
    std::fs::create_dir_all(path).map_err(disk(path))
}

fn list(path: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = std::fs::read_dir(path).map_err(disk(path))?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(disk(path))).collect()
}

/// Keys are longer than file names may be and have characters that paths may not.
fn file_name(key: &str) -> String {
    let digest = Md5::digest(key.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).chain([".object".to_owned()]).collect()
}

/// A file holds the key's length (4 bytes, little-endian), the key, and the body.
fn write(dir: &Path, key: &str, body: &[u8]) -> Result<(), StoreError> {
    let path = dir.join(file_name(key));
    let new = path.with_extension("new");
    let length = u32::try_from(key.len()).unwrap_or(u32::MAX).to_le_bytes();
    std::fs::write(&new, [&length, key.as_bytes(), body].concat()).map_err(disk(&new))?;
    std::fs::rename(&new, &path).map_err(disk(&path))
}

fn load(dir: &Path) -> Result<Objects, StoreError> {
    let mut objects = Objects::new();
    for path in list(dir)? {
        if path.extension().is_none_or(|extension| extension != "object") {
            continue;
        }
        let bytes = std::fs::read(&path).map_err(disk(&path))?;
        let modified = std::fs::metadata(&path).and_then(|data| data.modified());
        let modified = modified.map_err(disk(&path))?;
        let since = modified.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let broken = || {
            let source = io::Error::from(io::ErrorKind::InvalidData);
            StoreError::Disk { path: path.clone(), source }
        };
        let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(broken)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (key, body) = rest.split_at_checked(length).ok_or_else(broken)?;
        let key = String::from_utf8(key.to_vec()).map_err(|_| broken())?;
        let etag = Md5::digest(body).iter().map(|byte| format!("{byte:02x}")).collect();
        let modified_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        objects.insert(key, Stored { body: Bytes::copy_from_slice(body), etag, modified_ms });
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Store {
        Store::open(None, &["b".to_owned()]).unwrap()
    }

    fn put(
        store: &Store,
        key: &str,
        body: &'static str,
        expect: &Expect,
    ) -> Result<String, String> {
        let stored = store.put("b", key, Bytes::from_static(body.as_bytes()), expect);
        stored.map(|stored| stored.etag).map_err(|error| error.to_string())
    }

    #[test]
    fn conditions_are_exact() {
        let store = store();
        let old = put(&store, "k", "one", &Expect::Absent).unwrap();
        assert_eq!(old, "f97c5d29941bfb1b2fdab0874906ab82");
        assert!(put(&store, "k", "two", &Expect::Absent).is_err());
        assert!(put(&store, "k", "two", &Expect::ETag("f97c".to_owned())).is_err());
        let new = put(&store, "k", "two", &Expect::ETag(old.clone())).unwrap();
        assert!(put(&store, "k", "three", &Expect::ETag(old)).is_err());
        assert_eq!(store.get("b", "k").unwrap().body, "two");
        assert!(put(&store, "other", "x", &Expect::ETag(new)).unwrap_err().contains("no object"));
        assert!(matches!(
            store.put("c", "k", Bytes::new(), &Expect::Anything),
            Err(StoreError::NoBucket(_))
        ));
    }

    #[test]
    fn a_listing_goes_by_bytes_and_says_whether_there_is_more() {
        let store = store();
        for key in ["a/2", "a/10", "a/1", "b", "a/\u{e9}"] {
            put(&store, key, "", &Expect::Anything).unwrap();
        }
        let keys = |after: &str, limit| {
            let (page, more) = store.list("b", "a/", after, limit).unwrap();
            (page.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), more)
        };
        assert_eq!(keys("", 2), (vec!["a/1".to_owned(), "a/10".to_owned()], true));
        assert_eq!(keys("a/10", 2), (vec!["a/2".to_owned(), "a/\u{e9}".to_owned()], false));
        assert_eq!(keys("a/1", 0), (vec![], true));
    }

    #[test]
    fn objects_on_disk_are_there_again_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Store::open(Some(dir.path().to_owned()), &["b".to_owned()]).unwrap();
        let key = "a/".repeat(500);
        let store = open();
        put(&store, &key, "one", &Expect::Absent).unwrap();
        put(&store, &key, "two", &Expect::Anything).unwrap();
        put(&store, "gone", "x", &Expect::Anything).unwrap();
        store.delete("b", "gone", &Expect::Anything).unwrap();
        drop(store);
        let store = open();
        assert_eq!(store.get("b", &key).unwrap().body, "two");
        assert!(store.get("b", "gone").is_err());
        assert!(put(&store, &key, "three", &Expect::Absent).is_err());
    }
}
