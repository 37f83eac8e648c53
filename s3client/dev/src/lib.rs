//! An embedded S3.
