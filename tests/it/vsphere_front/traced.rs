//! Requests carry the trace context of their span.

use std::sync::Arc;

use agent_forge::vsphere::{Options, VsphereConnector};
use agent_forge_actors::ports::vcenter::{Connector as _, Credentials, Trust};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tracing::Instrument as _;

use super::support::Recorder;
use crate::{collector::traced, server::listen};

#[tokio::test]
async fn a_request_to_vcenter_carries_the_trace_that_it_is_made_in() {
    agent_forge_lab::install_tls_provider();
    let (_subscribers, span, carried) = traced();
    let (told, mut heads) = tokio::sync::mpsc::unbounded_channel();
    let address = listen(move |mut socket| {
        let told = told.clone();
        async move {
            let mut request = [0; 8192];
            let read = socket.read(&mut request).await.unwrap();
            let _ = told.send(String::from_utf8_lossy(&request[..read]).into_owned());
            let answer = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\n\r\n";
            let _ = socket.write_all(answer).await;
        }
    })
    .await;
    let options = Options {
        allow_http: true,
        ..Options::default()
    };
    let connector = VsphereConnector::new(Arc::new(Recorder::default()), options);
    let credentials = Credentials {
        server: format!("http://{address}").parse().unwrap(),
        username: "operator@vsphere.local".into(),
        password: "password".to_owned().into(),
        trust: Trust::Insecure,
    };
    let connected = connector.connect(&credentials).instrument(span).await;
    assert!(connected.is_err());
    let head = heads.recv().await.unwrap();
    assert!(head.contains(&carried), "{carried} is not in {head}");
}
