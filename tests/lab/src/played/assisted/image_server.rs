//! The image service: discovery images over HTTP on loopback, with switches for all faults.
//!
//! Guarantees: by default it behaves like the real service. HEAD, single ranges, `Last-Modified` and
//! `If-Modified-Since` work, and there is no ETag. An unknown token gets 404. Every answer and every byte is counted.
//! An image of any size is generated while it is sent. [`Manners`] make it another kind of server, and [`ImageFaults`]
//! a broken one.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use tokio::{net::TcpListener, task::JoinSet};

use super::{
    super::{nature, options::ImageOptions, task::Task},
    image,
};

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Bytes per frame of a download.
const CHUNK: usize = 128 << 10;
/// Bytes per frame at a limited rate.
const SLOW_CHUNK: usize = 16 << 10;
/// The content of an image after its head.
static ZEROS: [u8; CHUNK] = [0; CHUNK];

/// What goes wrong with every download, until it is changed. The default is nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageFaults {
    /// Bytes per second; `None` is as fast as possible.
    pub rate: Option<u64>,
    /// Answer with this status instead.
    pub status: Option<u16>,
    /// Break the connection after this many bytes.
    pub cut_after: Option<usize>,
    /// Send nothing more after this many bytes.
    pub stall_after: Option<usize>,
    /// Serve bytes that are not an ISO 9660 image.
    pub wrong_magic: bool,
    /// Add this to the announced length.
    pub length_lie: i64,
    /// First answer with this number of redirects, each to the same image at another path.
    pub redirects: usize,
    /// Redirect to this URL instead.
    pub location: Option<String>,
    /// Accept the request and never answer it.
    pub silent: bool,
    /// Only this number of GETs fail. Later ones succeed.
    pub times: Option<u32>,
}

/// What kind of server it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manners {
    /// Every download contains a new token.
    pub volatile: bool,
    /// Version of the bytes. It matters only if `volatile` is off.
    pub edition: u64,
    /// `ETag`.
    pub etag: Tag,
}

/// Kind of `ETag`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// None, like the real image service.
    None,
    /// Equal tags promise equal bytes.
    Strong,
    /// Strong, but different at each request, even if the bytes are equal.
    Moving,
}

/// The requests so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImageCounters {
    /// HEAD requests.
    pub heads: u64,
    /// GET requests, with redirects and refusals.
    pub gets: u64,
    /// Bytes of images that were sent.
    pub bytes: u64,
    /// Downloads that were sent to their last byte.
    pub completed: u64,
}

/// One image that can be downloaded.
#[derive(Debug, Clone)]
struct Served {
    namespace: String,
    name: String,
    modified: Timestamp,
}

#[derive(Debug, Default)]
struct Shelf {
    images: BTreeMap<String, Served>,
    /// Every token that was ever issued, including revoked ones.
    issued: Vec<String>,
    /// How often the rate limit of running downloads was removed.
    unleashed: u64,
    faults: ImageFaults,
    manners: Manners,
    counters: ImageCounters,
    first_get: Option<Instant>,
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            volatile: false,
            edition: 0,
            etag: Tag::None,
        }
    }
}

impl Shelf {
    /// The faults that apply to this request.
    fn faults(&mut self, head: bool) -> ImageFaults {
        match self.faults.times {
            Some(0) => ImageFaults::default(),
            Some(left) if !head => {
                self.faults.times = Some(left - 1);
                self.faults.clone()
            }
            _ => self.faults.clone(),
        }
    }
}

/// See the module's contract. Cheap to clone; ends with the last clone.
#[derive(Debug, Clone)]
pub struct ImageServer {
    address: SocketAddr,
    options: ImageOptions,
    shelf: Arc<Mutex<Shelf>>,
    _task: Option<Arc<Task>>,
}

impl ImageServer {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(options: ImageOptions) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("image server: no free port")?;
        let address = listener.local_addr()?;
        let shelf = Arc::new(Mutex::new(Shelf {
            manners: Manners {
                volatile: options.volatile,
                ..Manners::default()
            },
            ..Shelf::default()
        }));
        let task = Task::spawn(accept(listener, options.clone(), shelf.clone()));
        Ok(Self {
            address,
            options,
            shelf,
            _task: Some(Arc::new(task)),
        })
    }

    /// A server without a listener. [`ImageServer::image`] returns its published images.
    #[must_use]
    pub fn unplugged(options: ImageOptions) -> Self {
        let manners = Manners {
            volatile: options.volatile,
            ..Manners::default()
        };
        let shelf = Shelf {
            manners,
            ..Shelf::default()
        };
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 80)),
            options,
            shelf: Arc::new(Mutex::new(shelf)),
            _task: None,
        }
    }

    /// The image for a URL's path, as one GET returns it; `None` means 404. Faults are ignored, and of the manners only
    /// `volatile` applies.
    #[must_use]
    pub fn image(&self, path: &str) -> Option<Bytes> {
        let mut shelf = lock(&self.shelf);
        shelf.counters.gets += 1;
        let served = token(path).and_then(|token| shelf.images.get(token).cloned())?;
        let content = if shelf.manners.volatile {
            nature::uuid().simple().to_string()
        } else {
            format!("edition-{}", shelf.manners.edition)
        };
        let mut image = image::head(&self.options, &served.namespace, &served.name, &content);
        image.resize(image::size(&self.options), 0);
        shelf.counters.bytes += image.len() as u64;
        shelf.counters.completed += 1;
        Some(Bytes::from(image))
    }

    /// Publishes an image of this InfraEnv. Returns its URL, which is the only way to it.
    #[must_use]
    pub fn publish(&self, namespace: &str, name: &str) -> String {
        let token = nature::uuid().simple().to_string();
        let served = Served {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            modified: nature::now(),
        };
        {
            let mut shelf = lock(&self.shelf);
            shelf.issued.push(token.clone());
            shelf.images.insert(token.clone(), served);
        }
        format!(
            "http://{}/byapikey/{token}/4.19/x86_64/minimal.iso",
            self.address
        )
    }

    /// As [`Self::publish`], with a URL that does not look like one of the image service.
    #[must_use]
    pub fn publish_plainly(&self, namespace: &str, name: &str) -> String {
        self.publish(namespace, name)
            .replace("/byapikey/", "/mirror/")
    }

    /// Every token that a URL of this server ever contained, including revoked ones. No log or object may show one.
    #[must_use]
    pub fn issued_tokens(&self) -> Vec<String> {
        lock(&self.shelf).issued.clone()
    }

    /// Removes the rate limit from downloads that are under way.
    pub fn unleash(&self) {
        lock(&self.shelf).unleashed += 1;
    }

    /// Makes all URLs of this InfraEnv invalid.
    pub fn revoke(&self, namespace: &str, name: &str) {
        lock(&self.shelf).images.retain(|_, image| {
            (image.namespace.as_str(), image.name.as_str()) != (namespace, name)
        });
    }

    /// Sets `Last-Modified` of every image of this InfraEnv to now, as each reconcile of an InfraEnv does.
    pub fn touch(&self, namespace: &str, name: &str) {
        for image in lock(&self.shelf).images.values_mut() {
            if image.namespace == namespace && image.name == name {
                image.modified = nature::now();
            }
        }
    }

    /// Sets what goes wrong from now on.
    pub fn set_faults(&self, faults: ImageFaults) {
        lock(&self.shelf).faults = faults;
    }

    /// Sets what kind of server it is from now on.
    pub fn set_manners(&self, manners: Manners) {
        lock(&self.shelf).manners = manners;
    }

    /// The counts so far.
    #[must_use]
    pub fn counters(&self) -> ImageCounters {
        lock(&self.shelf).counters
    }

    /// When the first GET arrived.
    #[must_use]
    pub fn first_get(&self) -> Option<Instant> {
        lock(&self.shelf).first_get
    }

    /// Size of every image in bytes.
    #[must_use]
    pub fn image_size(&self) -> usize {
        image::size(&self.options)
    }
}

fn lock(shelf: &Mutex<Shelf>) -> MutexGuard<'_, Shelf> {
    shelf.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, options: ImageOptions, shelf: Arc<Mutex<Shelf>>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let (options, shelf) = (options.clone(), shelf.clone());
                connections.spawn(async move {
                    let answer = service_fn(move |request| answer(request, options.clone(), shelf.clone()));
                    if let Err(error) = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await {
                        tracing::debug!(%error, "image download ended early");
                    }
                });
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn answer(
    request: Request<Incoming>,
    options: ImageOptions,
    shelf: Arc<Mutex<Shelf>>,
) -> Result<Response<Body>, Infallible> {
    let head = request.method() == Method::HEAD;
    let (faults, manners, served) = {
        let mut shelf = lock(&shelf);
        if head {
            shelf.counters.heads += 1;
        } else {
            shelf.counters.gets += 1;
            shelf.first_get.get_or_insert_with(Instant::now);
        }
        (
            shelf.faults(head),
            shelf.manners.clone(),
            token(request.uri().path()).and_then(|token| shelf.images.get(token).cloned()),
        )
    };
    if faults.silent {
        std::future::pending::<()>().await;
    }
    let Some(served) = served.filter(|_| head || request.method() == Method::GET) else {
        return Ok(plain(StatusCode::NOT_FOUND, &[]));
    };
    if let Some(status) = faults.status {
        return Ok(plain(
            StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            &[],
        ));
    }
    let path = request.uri().path();
    let hops = path.matches("/moved").count();
    if let Some(location) = faults
        .location
        .clone()
        .or_else(|| (hops < faults.redirects).then(|| format!("/moved{path}")))
    {
        return Ok(plain(StatusCode::FOUND, &[(header::LOCATION, location)]));
    }
    let unique = nature::uuid().simple().to_string();
    let content = if manners.volatile {
        unique.clone()
    } else {
        format!("edition-{}", manners.edition)
    };
    let said = said_of(&served, &manners, &content, &unique);
    if is_had(request.headers(), &said) {
        return Ok(plain(StatusCode::NOT_MODIFIED, &said));
    }
    let mut begin = image::head(&options, &served.namespace, &served.name, &content);
    if faults.wrong_magic {
        begin[32768..32774].fill(b'x');
    }
    let image = Image {
        begin: Bytes::from(begin),
        size: image::size(&options),
    };
    let range = request.headers().get(header::RANGE);
    let range = range.and_then(|value| value.to_str().ok());
    let wanted = Wanted { head, said, range };
    Ok(download(image, wanted, faults, shelf))
}

/// Validators of this answer.
fn said_of(
    served: &Served,
    manners: &Manners,
    content: &str,
    unique: &str,
) -> Vec<(header::HeaderName, String)> {
    let modified = served.modified.strftime("%a, %d %b %Y %H:%M:%S GMT");
    let mut said = vec![(header::LAST_MODIFIED, modified.to_string())];
    let tag = match manners.etag {
        Tag::None => None,
        Tag::Strong => Some(format!("\"{content}\"")),
        Tag::Moving => Some(format!("\"{unique}\"")),
    };
    said.extend(tag.map(|tag| (header::ETAG, tag)));
    said
}

/// Whether the client already has the image (`If-None-Match` outranks `If-Modified-Since`).
fn is_had(asked: &HeaderMap, said: &[(header::HeaderName, String)]) -> bool {
    let says = |name: &header::HeaderName| said.iter().find(|(n, _)| n == name).map(|(_, v)| v);
    match asked.get(header::IF_NONE_MATCH) {
        Some(tag) => says(&header::ETAG).is_some_and(|own| *tag == **own),
        None => asked
            .get(header::IF_MODIFIED_SINCE)
            .is_some_and(|since| says(&header::LAST_MODIFIED).is_some_and(|own| *since == **own)),
    }
}

/// The token in `/byapikey/<token>/...` or `/mirror/<token>/...`, also behind `/moved`.
fn token(path: &str) -> Option<&str> {
    let path = path.trim_start_matches("/moved");
    let named = path
        .strip_prefix("/byapikey/")
        .or_else(|| path.strip_prefix("/mirror/"))?;
    let (token, file) = named.split_once('/')?;
    matches!(file.rsplit('/').next()?, "minimal.iso" | "full.iso").then_some(token)
}

fn plain(status: StatusCode, headers: &[(header::HeaderName, String)]) -> Response<Body> {
    let mut response = Response::new(
        Empty::new()
            .map_err(|never: Infallible| match never {})
            .boxed_unsync(),
    );
    *response.status_mut() = status;
    for (name, value) in headers {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// The first byte of a single range, and the byte after its last; `None` if the range does not fit.
fn range(text: &str, length: usize) -> Option<(usize, usize)> {
    let (from, to) = text.strip_prefix("bytes=")?.split_once('-')?;
    let range = match (from, to) {
        ("", last) => (length.checked_sub(last.parse().ok()?)?, length),
        (from, "") => (from.parse().ok()?, length),
        (from, to) => (
            from.parse().ok()?,
            (to.parse::<usize>().ok()? + 1).min(length),
        ),
    };
    (range.0 < range.1).then_some(range)
}

/// An image: its first bytes, and zeros up to its size.
struct Image {
    begin: Bytes,
    size: usize,
}

impl Image {
    /// Bytes from `from` on, at most up to `to` and at most `most`. Never empty while `from < to`.
    fn chunk(&self, from: usize, to: usize, most: usize) -> Bytes {
        let to = to.min(from + most.min(CHUNK));
        if from < self.begin.len() {
            self.begin.slice(from..to.min(self.begin.len()))
        } else {
            Bytes::from_static(&ZEROS[..to - from])
        }
    }
}

/// What the answer must be like.
struct Wanted<'a> {
    head: bool,
    said: Vec<(header::HeaderName, String)>,
    range: Option<&'a str>,
}

fn download(
    image: Image,
    wanted: Wanted<'_>,
    faults: ImageFaults,
    shelf: Arc<Mutex<Shelf>>,
) -> Response<Body> {
    let total = image.size;
    let mut headers = vec![
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=discovery.iso".to_owned(),
        ),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
    ];
    headers.extend(wanted.said);
    let (mut status, mut part) = (StatusCode::OK, (0, total));
    if let Some(text) = wanted.range {
        let Some((from, to)) = range(text, total) else {
            let unsatisfied = [(header::CONTENT_RANGE, format!("bytes */{total}"))];
            return plain(StatusCode::RANGE_NOT_SATISFIABLE, &unsatisfied);
        };
        headers.push((
            header::CONTENT_RANGE,
            format!("bytes {from}-{}/{total}", to - 1),
        ));
        status = StatusCode::PARTIAL_CONTENT;
        part = (from, to);
    }
    let announced = i64::try_from(part.1 - part.0)
        .unwrap_or(i64::MAX)
        .saturating_add(faults.length_lie)
        .max(0);
    headers.push((header::CONTENT_LENGTH, announced.to_string()));
    let mut response = plain(status, &headers);
    if !wanted.head {
        *response.body_mut() = StreamBody::new(frames(image, part, faults, shelf)).boxed_unsync();
    }
    response
}

/// The part in chunks, at the wanted rate, up to the point where it must break or stall.
fn frames(
    image: Image,
    part: (usize, usize),
    faults: ImageFaults,
    shelf: Arc<Mutex<Shelf>>,
) -> impl stream::Stream<Item = Result<Frame<Bytes>, std::io::Error>> {
    let stop = [faults.cut_after, faults.stall_after]
        .into_iter()
        .flatten()
        .min();
    let end = part.0 + stop.unwrap_or(usize::MAX).min(part.1 - part.0);
    let rate = faults.rate.filter(|rate| *rate > 0);
    let begun = lock(&shelf).unleashed;
    stream::unfold(Some((part.0, image)), move |state| {
        let (faults, shelf) = (faults.clone(), shelf.clone());
        async move {
            let (at, image) = state?;
            if at >= end {
                if end == part.1 {
                    return None;
                }
                if faults.stall_after.is_some() {
                    std::future::pending::<()>().await;
                }
                let broken =
                    std::io::Error::new(std::io::ErrorKind::ConnectionReset, "cut off on request");
                return Some((Err(broken), None));
            }
            let rate = rate.filter(|_| lock(&shelf).unleashed == begun);
            let most = if rate.is_some() { SLOW_CHUNK } else { CHUNK };
            let chunk = image.chunk(at, end, most);
            if let Some(rate) = rate {
                tokio::time::sleep(Duration::from_secs_f64(chunk.len() as f64 / rate as f64)).await;
            }
            let next = at + chunk.len();
            {
                let mut shelf = lock(&shelf);
                shelf.counters.bytes += chunk.len() as u64;
                if next == image.size {
                    shelf.counters.completed += 1;
                }
            }
            Some((Ok(Frame::data(chunk)), Some((next, image))))
        }
    })
}
