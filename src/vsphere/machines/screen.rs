//! Pictures of consoles: `GET /screen?id=<reference of the VM>`, as the vendor documents it at
//! `HostCapability.screenshotSupported`. It makes no file on a datastore and changes nothing, so it is no effect.

use agent_forge_actors::{
    domain::names::MoRef,
    ports::vcenter::{Fault, VcErrorKind, VcResult},
    sessions::refusals::Door,
};
use bytes::Bytes;
use http::{HeaderMap, Method};

use crate::vsphere::{
    datastore::upload,
    rpc::{
        client::Client,
        http::{Reply, VcErrorKindAndMessage, query},
        session::Asked,
    },
};

/// The privilege that vCenter asks for.
const PRIVILEGE: &str = "VirtualMachine.Interact.ConsoleInteract";
/// How a PNG begins.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

impl Client {
    /// What the console of a running VM shows now, as a PNG.
    pub(crate) async fn screen(&self, vm: &MoRef) -> VcResult<Bytes> {
        let session = self.session(Asked::ByCall).await?;
        let cookie = upload::cookie(&session.token())?;
        match self.get_screen(vm, cookie).await {
            Err(e) if matches!(e.fault(), Some(Fault::NotAuthenticated)) => {}
            other => return other,
        }
        // As for files: this vCenter does not take the session as a cookie.
        let asking = self.get_screen(vm, self.basic()?);
        self.ledger()
            .attempt(&self.login, Door::Folder, asking)
            .await
    }

    async fn get_screen(&self, vm: &MoRef, headers: HeaderMap) -> VcResult<Bytes> {
        let path = "/screen".to_owned();
        let mut request = self.request(Method::GET, path, "GetScreen", vm.to_string());
        request.query = Some(format!("id={}", query(&vm.id)));
        request.headers.extend(headers);
        Ok(self.http.send(request, judge).await?.body)
    }
}

/// The failure in the reply. No HTTP status names a privilege.
fn judge(reply: &Reply) -> Option<VcErrorKindAndMessage> {
    let fault = |fault: Fault, message: &str| Some((VcErrorKind::Fault(fault), message.to_owned()));
    match reply.status {
        200..=299 if reply.body.starts_with(PNG) => None,
        200..=299 => Some((
            VcErrorKind::Undecodable,
            "the reply is not a picture".to_owned(),
        )),
        401 => fault(
            Fault::NotAuthenticated,
            "vCenter does not accept the session for pictures of consoles",
        ),
        403 => fault(
            Fault::NoPermission {
                object: None,
                privilege: PRIVILEGE.to_owned(),
            },
            &format!("the vCenter user needs {PRIVILEGE} on the VM"),
        ),
        404 => Some((
            VcErrorKind::Status(404),
            "vCenter has no picture of that VM".to_owned(),
        )),
        other => Some((
            VcErrorKind::Status(other),
            format!("the server answered with HTTP status {other}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_picture_is_one_and_a_refusal_names_the_privilege() {
        let said = |status: u16, body: &'static [u8]| {
            let reply = Reply {
                status,
                headers: HeaderMap::new(),
                body: Bytes::from_static(body),
                tls: None,
            };
            judge(&reply).map(|(_, said)| said)
        };
        assert_eq!(said(200, b"\x89PNG\r\n\x1a\nrest"), None);
        assert!(said(200, b"<html>").is_some_and(|s| s.contains("not a picture")));
        assert!(said(403, b"").is_some_and(|s| s.contains(PRIVILEGE)));
        assert!(said(500, b"\x89PNG\r\n\x1a\n").is_some_and(|s| s.contains("500")));
    }
}
