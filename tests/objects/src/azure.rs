//! How Azure lists a container. Objects are asked for as S3 is.

use crate::http::Request;
use crate::reply::Reply;
use crate::store::Store;
use crate::text::escape;
use crate::time;
use std::fmt::Write;

/// Most objects and prefixes of a page.
const PAGE_MOST: usize = 5000;

/// Whether a request is for a page of Azure's.
pub fn is_list(request: &Request) -> bool {
    request.parameter("comp") == Some("list") && request.parameter("restype") == Some("container")
}

/// A page of the objects of `bucket`.
pub fn list(request: &Request, bucket: &str, store: &Store) -> Reply {
    let text = |name: &str| request.parameter(name).unwrap_or_default();
    let (prefix, from) = (text("prefix"), text("marker").parse().unwrap_or(0));
    let most = text("maxresults").parse().unwrap_or(PAGE_MOST).min(PAGE_MOST);
    let page = store.listing(bucket, prefix, from > 0).page(prefix, text("delimiter"), from, most);
    let mut xml = format!("<EnumerationResults ContainerName=\"{bucket}\"><Prefix>{}</Prefix><Blobs>", escape(prefix));
    for entry in &page.entries {
        let (key, modified) = (escape(&entry.key), time::http(entry.modified));
        let _ = write!(
            xml,
            "<Blob><Name>{key}</Name><Properties><Last-Modified>{modified}</Last-Modified><Etag>{}</Etag>\
             <Content-Length>{}</Content-Length></Properties></Blob>",
            entry.etag, entry.size
        );
    }
    for common in &page.prefixes {
        let _ = write!(xml, "<BlobPrefix><Name>{}</Name></BlobPrefix>", escape(common));
    }
    let next = page.next.map_or(String::new(), |at| at.to_string());
    let _ = write!(xml, "</Blobs><NextMarker>{next}</NextMarker></EnumerationResults>");
    Reply::xml(200, &xml)
}
