//! Uploads through `/folder`, the plain HTTP access to datastore files.

use std::time::Duration;

use agent_forge_actors::{
    domain::names::{DatastorePath, MoRef},
    ports::{
        effect::Effect,
        vcenter::{ByteStream, Fault, VcError, VcErrorKind, VcResult},
    },
    sessions::refusals::Door,
};
use base64::Engine as _;
use http::{HeaderMap, HeaderValue, Method, header};
use secrecy::ExposeSecret as _;
use serde_json::Value;

use crate::vsphere::rpc::{
    client::Client,
    http::{Reply, VcErrorKindAndMessage, query, segment},
    session::Asked,
};

/// Time limit of a whole upload. It is longer than the download behind it may take (`--iso-deadline`), whose own limit
/// shows what is slow.
pub(crate) const UPLOAD_LIMIT: Duration = Duration::from_secs(13 * 3600);

impl Client {
    /// Uploads `length` bytes. The caller must provide exactly that many, and must watch that the transfer advances.
    pub(super) async fn put(
        &self,
        effect: &Effect,
        datacenter: &MoRef,
        path: &DatastorePath,
        length: u64,
        body: ByteStream,
    ) -> VcResult<()> {
        let dc_path = self.datacenter_path(datacenter).await?;
        let url_path = path
            .path
            .split('/')
            .fold("/folder".to_owned(), |url, name| {
                format!("{url}/{}", segment(name))
            });
        let url_query = format!(
            "dcPath={}&dsName={}",
            query(&dc_path),
            query(&path.datastore)
        );
        let authorisation = self
            .upload_authorisation(&url_path, &url_query, path)
            .await?;

        let mut request = self.request(Method::PUT, url_path, "PutFile", path.to_string());
        request.query = Some(url_query);
        request.timeout = UPLOAD_LIMIT;
        request.headers.extend(authorisation.headers);
        request
            .headers
            .insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        request.headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        );
        request.body = reqwest::Body::wrap_stream(body);
        let judge = |r: &Reply| judge_file(r, path, "Datastore.FileManagement");
        let sending = self.http.send(request, judge);
        let mut sent = self
            .gated(Some(effect.into()), "PutFile", &path.to_string(), sending)
            .await;
        if authorisation.by_password {
            sent = sent.map_err(|e| self.ledger().judged(&self.login, Door::Folder, e));
        }
        sent.map(drop)
    }

    /// Whether `/folder` accepts the session as a cookie, or wants user and password. The client finds out with a
    /// request for the file, since it can send a stream of bytes only once.
    async fn upload_authorisation(
        &self,
        path: &str,
        query: &str,
        file: &DatastorePath,
    ) -> VcResult<Authorisation> {
        let mut fresh_login = false;
        loop {
            let session = self.session(Asked::ByCall).await?;
            let cookie = cookie(&session.token())?;
            match self.probe(path, query, file, cookie.clone()).await {
                Ok(()) => {
                    return Ok(Authorisation {
                        headers: cookie,
                        by_password: false,
                    });
                }
                Err(e) if !matches!(e.kind, VcErrorKind::Fault(Fault::NotAuthenticated)) => {
                    return Err(e);
                }
                Err(_) => {}
            }
            if !fresh_login && !self.session_lives(&session).await? {
                self.session.lost(session.generation);
                fresh_login = true;
                continue;
            }
            let headers = self.basic()?;
            let asking = self.probe(path, query, file, headers.clone());
            let ledger = self.ledger();
            ledger.attempt(&self.login, Door::Folder, asking).await?;
            return Ok(Authorisation {
                headers,
                by_password: true,
            });
        }
    }

    async fn session_lives(
        &self,
        session: &crate::vsphere::rpc::session::Session,
    ) -> VcResult<bool> {
        let manager: MoRef = session.endpoint.content.session_manager.clone().into();
        match self
            .property_in::<Value>(session, &manager, "currentSession")
            .await
        {
            Ok(found) => Ok(found.is_some()),
            Err(e) if crate::vsphere::rpc::reply::session_gone(&e) => Ok(false),
            Err(e) => Err(e),
        }
    }

    async fn probe(
        &self,
        path: &str,
        query: &str,
        file: &DatastorePath,
        headers: HeaderMap,
    ) -> VcResult<()> {
        let mut request = self.request(Method::HEAD, path.to_owned(), "HeadFile", file.to_string());
        request.query = Some(query.to_owned());
        request.headers.extend(headers);
        let judge = |r: &Reply| judge_file(r, file, "Datastore.Browse");
        match self.http.send(request, judge).await {
            Err(e) if !matches!(e.fault(), Some(Fault::FileNotFound(_))) => Err(e),
            _ => Ok(()),
        }
    }

    /// User and password.
    pub(crate) fn basic(&self) -> VcResult<HeaderMap> {
        let pair = format!(
            "{}:{}",
            self.credentials.username,
            self.credentials.password.expose_secret()
        );
        let text = format!(
            "Basic {}",
            base64::engine::general_purpose::STANDARD.encode(pair)
        );
        one_header(header::AUTHORIZATION, &text)
    }
}

/// What `/folder` accepts.
struct Authorisation {
    headers: HeaderMap,
    /// With user and password instead of the session.
    by_password: bool,
}

/// The session as a cookie.
pub(crate) fn cookie(token: &HeaderValue) -> VcResult<HeaderMap> {
    one_header(
        header::COOKIE,
        &format!("vmware_soap_session={}", token.to_str().unwrap_or_default()),
    )
}

fn one_header(name: header::HeaderName, text: &str) -> VcResult<HeaderMap> {
    let mut value = HeaderValue::try_from(text).map_err(|_| {
        VcError::new(
            VcErrorKind::Undecodable,
            "PutFile",
            name.to_string(),
            "the session's id does not fit into a header",
        )
    })?;
    value.set_sensitive(true);
    Ok(HeaderMap::from_iter([(name, value)]))
}

/// The failure in an HTTP status of `/folder`. `privilege` is what the request needs: no status names it.
fn judge_file(
    reply: &Reply,
    file: &DatastorePath,
    privilege: &str,
) -> Option<VcErrorKindAndMessage> {
    let fault = |fault: Fault, message: &str| Some((VcErrorKind::Fault(fault), message.to_owned()));
    match reply.status {
        200..=299 => None,
        401 => fault(
            Fault::NotAuthenticated,
            "the datastore's file access does not accept the session",
        ),
        403 => fault(
            Fault::NoPermission {
                object: None,
                privilege: privilege.to_owned(),
            },
            &format!(
                "access to the datastore's files is denied; the user needs {privilege} on datastore {:?}",
                file.datastore
            ),
        ),
        404 => fault(
            Fault::FileNotFound(String::new()),
            "no such datastore, directory or file",
        ),
        507 => fault(Fault::NoDiskSpace(String::new()), "the datastore is full"),
        other => Some((
            VcErrorKind::Status(other),
            format!("the server answered with HTTP status {other}"),
        )),
    }
}
