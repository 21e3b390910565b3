//! Checks that the tokens in the image server's URLs appear nowhere else.

use agent_forge_lab::played::assisted::image_server::ImageServer;
use anyhow::{Context as _, Result, ensure};
use kube::{
    Api, ResourceExt as _,
    api::DynamicObject,
    discovery::{Discovery, verbs},
};

use super::cli::command;
use crate::world::{LIMIT, World};

/// Checks that no output of the operator contains a token of the image server. That is the log, the metrics, the debug
/// endpoint and `agent-forge iso`. Every object of the cluster is checked too, except InfraEnvs, which own the URL.
pub async fn no_token_is_told(world: &World, server: &ImageServer) -> Result<()> {
    let operator = world.operator()?;
    let topology = format!("{}/topology.json", operator.web_url());
    let page = reqwest::get(&topology).await?.error_for_status()?;
    let page = page.text().await?;
    let shown = shown_isos(world, 0).await?;
    let mut said = vec![
        ("the log".to_owned(), operator.log()?),
        ("the metrics".to_owned(), operator.metrics().await?),
        ("the web page".to_owned(), page),
        (
            "the debug endpoint".to_owned(),
            format!("{:?}", world.actors(LIMIT).await?),
        ),
        ("`agent-forge iso`".to_owned(), shown),
    ];
    let all = Discovery::new(world.client.clone()).run().await?;
    let kinds = all.groups().flat_map(|group| group.recommended_resources());
    for (kind, can) in kinds {
        if kind.kind == "InfraEnv" || !can.supports_operation(verbs::LIST) {
            continue;
        }
        let objects: Api<DynamicObject> = Api::all_with(world.client.clone(), &kind);
        let objects = objects.list(&Default::default()).await;
        let objects = objects.with_context(|| format!("list {}", kind.plural))?;
        for object in objects {
            let name = format!("{} {}", kind.kind, object.name_any());
            said.push((name, serde_json::to_string(&object)?));
        }
    }
    let pools = said
        .iter()
        .any(|(name, _)| name.starts_with("VsphereAgentPool "));
    ensure!(pools, "no pool was looked at");
    let tokens = server.issued_tokens();
    ensure!(!tokens.is_empty(), "no token was issued");
    for (name, text) in &said {
        let told = tokens.iter().find(|token| text.contains(token.as_str()));
        ensure!(told.is_none(), "a token is in {name}: {told:?}");
    }
    Ok(())
}

/// The output of `agent-forge iso`, which ends with this code.
pub async fn shown_isos(world: &World, code: i32) -> Result<String> {
    let shown = command(world, &["iso", "--namespace", world.namespace()]).await?;
    ensure!(
        shown.code == code,
        "{}: {}{}",
        shown.code,
        shown.text,
        shown.errors
    );
    Ok(shown.text)
}
