//! The lab's witness for a scenario.

use agent_forge_lab::witness::Sight;
pub use agent_forge_lab::witness::Witness;

use crate::world::World;

impl World {
    /// What a witness of this world observes.
    pub fn sight(&self) -> Sight {
        Sight {
            vcenter: self.vcenter.clone(),
            children: self.children(),
            agents: self.agents(),
            machines: self.machines(),
        }
    }
}
