//! The image service as the operator's ISO source.

use std::sync::Arc;

use agent_forge_actors::{
    domain::failure::Class,
    ports::iso_source::{Freshness, IsoDownload, IsoError, IsoRequest, IsoSource, Validators},
};
use agent_forge_crds::conditions::Reason;
use agent_forge_lab::played::assisted::image_server::ImageServer;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use tokio::sync::watch;

use crate::director::{Life, alive};

const CHUNK: usize = 64 << 10;

/// Whether downloads send nothing for now. All clones are the same switch.
#[derive(Clone, Debug)]
pub struct Hold(Arc<watch::Sender<bool>>);

impl Default for Hold {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Hold {
    /// Stops all downloads (`true`), or lets them continue.
    pub fn set(&self, held: bool) {
        self.0.send_replace(held);
    }

    async fn over(self) {
        // This clone keeps the switch alive while the download waits.
        let _ = self.0.subscribe().wait_for(|held| !held).await;
    }
}

/// Gives the operator the images of the image server.
pub struct Images {
    /// The image server.
    pub server: ImageServer,
    /// Whether downloads send anything.
    pub hold: Hold,
    /// The process that downloads.
    pub life: Arc<Life>,
}

#[async_trait]
impl IsoSource for Images {
    async fn open(&self, request: &IsoRequest) -> Result<IsoDownload, IsoError> {
        alive(Some(&self.life)).await;
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        let Some(image) = self.server.image(request.url.expose().path()) else {
            return Err(IsoError {
                reason: Reason::IsoDownloadFailed,
                message: "the ISO's server answered with HTTP status 404".to_owned(),
                class: Class::Blocked,
            });
        };
        let length = image.len() as u64;
        let chunks: Vec<Bytes> = (0..image.len())
            .step_by(CHUNK)
            .map(|at| image.slice(at..(at + CHUNK).min(image.len())))
            .collect();
        Ok(IsoDownload {
            length,
            validators: Validators::default(),
            body: futures::stream::once(self.hold.clone().over())
                .flat_map(move |()| futures::stream::iter(chunks.clone()))
                .map(Ok)
                .boxed(),
        })
    }

    async fn freshness(&self, _: &IsoRequest, _: &Validators) -> Result<Freshness, IsoError> {
        alive(Some(&self.life)).await;
        Ok(Freshness::Unknown)
    }
}
