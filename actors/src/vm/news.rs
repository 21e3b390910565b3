//! What vCenter, or a scan, tells of a VM that this actor has not looked for yet.

use agent_forge_crds::agent::VmStatus;

use super::memory::Memory;
use crate::context::{Context, VmNote};

/// The last scan or the last news show that it does not run as recorded.
pub(super) fn is_doubted(context: &Context, vm: &VmStatus) -> bool {
    if news_of(context, vm).is_some_and(|note| !note.runs) {
        return true;
    }
    let (Some(server), Some(moref)) = (&vm.server, &vm.moref) else {
        return false;
    };
    let doubts = context.doubts.borrow();
    doubts.get(server).is_some_and(|all| all.contains(moref))
}

/// What its vCenter reported of the recorded VM.
pub(super) fn news_of(context: &Context, vm: &VmStatus) -> Option<VmNote> {
    let news = context.news.borrow();
    let of_server = news.get(vm.server.as_ref()?)?;
    of_server.get(vm.moref.as_ref()?).copied()
}

/// Its vCenter reported a change for which this actor has not looked.
pub(super) fn has_news(context: &Context, vm: Option<&VmStatus>, memory: &Memory) -> bool {
    let note = vm.and_then(|vm| news_of(context, vm));
    note.is_some_and(|note| note.number > memory.news)
}
