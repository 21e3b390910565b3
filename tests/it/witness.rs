//! The lab's witness beside a scenario.

use agent_forge_lab::witness::Sight;
pub use agent_forge_lab::witness::Witness;

use crate::world::World;

impl World {
    /// Where a witness of this world looks.
    pub fn sight(&self) -> Sight {
        Sight {
            vcenter: self.vcenter.clone(),
            children: self.children(),
            agents: self.agents(),
            machines: self.machines(),
        }
    }
}
