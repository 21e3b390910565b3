//! Calls that are accepted and never answered, for each method that the operator uses to create and to delete a VM. The
//! condition reports it, the actors still answer, and work continues afterwards.

use std::time::Duration;

use agent_forge_lab::parts::{VCenterOptions, vcenter_trouble::Rule};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{
    shared::PROMPT,
    site::Site,
    trouble::{side_by_side, until_called},
    world::{Setup, World},
};

/// When the method stops to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// Before the pool exists.
    Start,
    /// While the VM is being created.
    Create,
    /// After the reply to the create was lost.
    LostCreate,
    /// When the VM serves, before it must be destroyed.
    End,
}

/// A method that is never answered from a moment on, and what the pool reports in the meantime.
struct Silent {
    name: &'static str,
    method: &'static str,
    from: From,
    reason: &'static str,
    tagged: bool,
}

const fn silent(name: &'static str, method: &'static str, from: From) -> Silent {
    Silent {
        name,
        method,
        from,
        reason: "VCenterNoAnswer",
        tagged: false,
    }
}

/// The pool shows this reason only for a moment, until the next try, which takes a minute to fail. So the test reads
/// the cache's state instead.
const STALLED: &str = "ISOUploadStalled";

/// The operator does not hear about the end of any task, so the move of the file never ends.
const fn unwatched(name: &'static str, method: &'static str) -> Silent {
    Silent {
        reason: STALLED,
        ..silent(name, method, From::Start)
    }
}

const SILENT: &[Silent] = &[
    silent(
        "hello",
        "POST /api/vcenter/system?action=hello",
        From::Start,
    ),
    silent("content", "GET content", From::Start),
    silent("login", "Login", From::Start),
    silent("find", "FindByInventoryPath", From::Start),
    silent("properties", "RetrievePropertiesEx", From::Start),
    silent("browser", "GET browser", From::Start),
    silent("list", "SearchDatastore_Task", From::Start),
    silent("mkdir", "MakeDirectory", From::Start),
    silent("head", "HEAD /folder", From::Start),
    Silent {
        reason: STALLED,
        ..silent("upload", "PUT /folder", From::Start)
    },
    silent("publish", "MoveDatastoreFile_Task", From::Start),
    silent("folder", "CreateFolder", From::Start),
    silent("recommend", "RecommendDatastores", From::Start),
    silent("create", "CreateVM_Task", From::Start),
    silent("reconfigure", "ReconfigVM_Task", From::Start),
    silent("power-on", "PowerOnVM_Task", From::Start),
    unwatched("list-view", "CreateListView"),
    unwatched("collector", "CreatePropertyCollector"),
    unwatched("filter", "CreateFilter"),
    unwatched("add-to-list", "ModifyListView"),
    unwatched("updates-of-iso", "WaitForUpdatesEx"),
    silent("updates", "WaitForUpdatesEx", From::Create),
    silent("properties-late", "RetrievePropertiesEx", From::Create),
    silent("search", "FindAllByUuid", From::LostCreate),
    Silent {
        reason: "TaggingFailed",
        tagged: true,
        ..silent(
            "tag",
            "POST /api/cis/tagging/tag-association/{tag_id}?action=attach",
            From::Start,
        )
    },
    silent("power-off", "PowerOffVM_Task", From::End),
    silent("destroy", "Destroy_Task", From::End),
    silent("search-late", "FindAllByUuid", From::End),
];

async fn play(world: &World, site: &Site, case: &Silent) -> Result<()> {
    let rule = Rule::hangs(case.method);
    let patch: Value = if case.tagged {
        let tags = site.admin.inventory().await?.tags;
        json!({"vsphere": {"vmTags": [tags.first().context("a tag")?.id]}})
    } else {
        json!({})
    };
    let rule = match case.from {
        From::Start => {
            let rule = site.admin.add_rule(&rule).await?;
            site.open(world, &patch).await?;
            site.nodes.scale(1);
            rule
        }
        From::Create => {
            site.open(world, &patch).await?;
            site.nodes.scale(1);
            until_called(world, site, "CreateVM_Task", 1).await?;
            site.admin.add_rule(&rule).await?
        }
        From::LostCreate => {
            let lost = Rule::loses_reply("CreateVM_Task").times(1);
            site.admin.add_rule(&lost).await?;
            let rule = site.admin.add_rule(&rule).await?;
            site.open(world, &patch).await?;
            site.nodes.scale(1);
            rule
        }
        From::End => {
            site.up(world, &patch).await?;
            let rule = site.admin.add_rule(&rule).await?;
            site.nodes.scale(0);
            rule
        }
    };
    let what = format!("silence of {}", case.method);
    let hung = async || Ok(site.admin.rule_hits(&rule).await? > Some(0));
    site.explained(world, world.until(&what, hung).await)
        .await?;
    let said = if case.reason == STALLED {
        site.until_iso_failed(world).await?
    } else {
        site.until_trouble(world, case.reason).await?
    };
    world
        .actors(PROMPT)
        .await
        .with_context(|| format!("while {} hangs: {said}", case.name))?;
    site.admin.remove_rule(&rule).await?;
    if case.from != From::End {
        site.running(world, 1).await?;
    }
    site.never_double(1, 1)?;
    site.empties(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_never_answered_costs_time_and_nothing_else() -> Result<()> {
    let world = World::without_pool(Setup::named()).await?;
    let slow = VCenterOptions {
        create_delay: Duration::from_secs(6),
        ..VCenterOptions::default()
    };
    let of = |case: &Silent| match case.from {
        From::Create => (case.name, slow.clone()),
        _ => (case.name, VCenterOptions::default()),
    };
    side_by_side(&world, SILENT, of, play).await
}
