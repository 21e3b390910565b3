//! Reasons of conditions, of `waitingOn`, of failures and of a VM's phase: one table.
//!
//! A row has the words, the class, what follows from the reason beside its words ([`Policy`]), who can end the wait, the meaning
//! and the remedy. `agent-forge reasons` prints it. A test compares docs/reference/reasons.md with it.

use serde::Serialize;

use super::words::words;

/// How the operator goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Class {
    /// Without help.
    Progress,
    /// When somebody has done something, or something outside has changed.
    Waits,
    /// When nothing holds it any more: a wish of people, or a part of the hub that is unknown.
    Held,
    /// When an input that cannot be used is corrected.
    Refused,
    /// When a defect is corrected, of the operator or of what it reads.
    Defect,
}

impl Class {
    /// In a word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Progress => "progress",
            Self::Waits => "waits",
            Self::Held => "held",
            Self::Refused => "refused",
            Self::Defect => "defect",
        }
    }

    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Progress => "by itself",
            Self::Waits => "when somebody has done something, or something outside has changed",
            Self::Held => "when nothing holds it any more",
            Self::Refused => "when an input is corrected",
            Self::Defect => "when a defect is corrected",
        }
    }
}

/// What follows from a reason beside its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// An Event on the VsphereAgent reports it, and one on its AgentMachine if that waits.
    Told,
    /// The VM of a VsphereAgent that waits for this is of no use to a Machine.
    Useless,
    /// The VM of a VsphereAgent that waits for this does not come up without a person. It does not count as being provisioned.
    Stuck,
    /// It says that something does not exist. That is unknown while the caches have no room for something.
    Absent,
    /// It follows from how the VM was seen. Somebody may have changed or removed the VM, so the next pass looks again.
    Seen,
    /// A step that fails for this holds no later step back.
    Optional,
    /// A file was missing or locked: the datastore is looked at soon.
    File,
    /// A create that is refused for this says nothing about the place: another one would not help.
    NoMatterWhere,
    /// It concerns all work at a vCenter: the account, or its Secret.
    Account,
    /// It concerns all work at a vCenter, and says nothing of the object that met it: vCenter is away, or the connection to it.
    Away,
    /// It says nothing of the object that met it: a part of the operator is not ready.
    Inside,
}

/// What people need to know about a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// How the operator goes on.
    pub class: Class,
    /// What it means.
    pub meaning: &'static str,
    /// Who can end the wait.
    pub who: Who,
    /// What that person does.
    pub remedy: &'static str,
    /// The section of docs/reference/reasons.md.
    pub section: Section,
    policies: &'static [Policy],
}

/// Who can end a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Who {
    /// The operator goes on without help.
    Nobody,
    /// The owner of the pool: its spec, its Secret, its VsphereAgents.
    PoolOwner,
    /// The owner of NodePool, InfraEnv, agent provider and assisted service.
    Hub,
    /// The administrator of vCenter.
    Vcenter,
    /// The administrator of the network between hub, vCenter and VMs.
    Network,
    /// The administrator of this operator.
    Operator,
    /// The person who set the pause or the veto.
    Holder,
    /// The owner of the hosts that BYOH manages, and of their installer templates.
    HostOwner,
}

impl Who {
    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Nobody => "nobody has to: the operator goes on by itself",
            Self::PoolOwner => "the owner of the pool",
            Self::Hub => "the owner of NodePool, InfraEnv and assisted service",
            Self::Vcenter => "the administrator of vCenter",
            Self::Network => "the administrator of the network",
            Self::Operator => "the administrator of agent-forge",
            Self::Holder => "the person who set it",
            Self::HostOwner => "the owner of the hosts of BYOH",
        }
    }
}

/// A section of docs/reference/reasons.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// "Good states".
    Good,
    /// "Demand: AgentMachines and NodePools".
    Demand,
    /// "InfraEnv".
    InfraEnv,
    /// "Discovery ISO".
    Iso,
    /// "Credentials and connection to vCenter".
    Access,
    /// "spec.vsphere and resources".
    Place,
    /// "VM".
    Vm,
    /// "Agent".
    Agent,
    /// "Deletion".
    Deletion,
    /// "Holds by people".
    Holds,
    /// "Hosts of BYOH".
    Byoh,
    /// "The operator itself".
    Operator,
    /// A name that vCenter gave to a fault. The page has no row for it.
    Foreign,
}

impl Section {
    /// Where it is: page and anchor.
    #[must_use]
    pub const fn page(self) -> &'static str {
        match self {
            Self::Good => "docs/reference/reasons.md#good-states",
            Self::Demand => "docs/reference/reasons.md#demand-agentmachines-and-nodepools",
            Self::InfraEnv => "docs/reference/reasons.md#infraenv",
            Self::Iso => "docs/reference/reasons.md#discovery-iso",
            Self::Access => "docs/reference/reasons.md#credentials-and-connection-to-vcenter",
            Self::Place => "docs/reference/reasons.md#specvsphere-and-resources",
            Self::Vm => "docs/reference/reasons.md#vm",
            Self::Agent => "docs/reference/reasons.md#agent",
            Self::Deletion => "docs/reference/reasons.md#deletion",
            Self::Holds => "docs/reference/reasons.md#holds-by-people",
            Self::Byoh => "docs/reference/reasons.md#hosts-of-byoh",
            Self::Operator => "docs/reference/reasons.md#the-operator-itself",
            Self::Foreign => "docs/reference/reasons.md#where-reasons-appear",
        }
    }
}

macro_rules! reasons {
    ($($section:ident { $(
        $($name:ident = $word:literal)|+ => $class:ident $([$($policy:ident),+])?, $who:ident, $meaning:literal, $remedy:literal;
    )* })*) => {
        words! {
            /// Why something is as it is, as one CamelCase word for programs.
            ///
            /// It is in conditions, in `status.waitingOn[]`, in `status.vm.reason` and in each failure. `Other` is also vCenter's own
            /// name of a fault.
            Reason {
                $($($(
                    #[doc = $meaning]
                    $name = $word,
                )+)*)*
            }
        }

        impl Reason {
            /// What people need to know about it.
            #[must_use]
            pub const fn about(&self) -> About {
                match self {
                    $($($(Self::$name)|+ => About {
                        class: Class::$class,
                        meaning: $meaning,
                        who: Who::$who,
                        remedy: $remedy,
                        section: Section::$section,
                        policies: &[$($(Policy::$policy),+)?],
                    },)*)*
                    Self::Other(_) => About {
                        class: Class::Waits,
                        meaning: "vCenter gave this name to its fault. The message has vCenter's sentence.",
                        who: Who::Vcenter,
                        remedy: "Correct what the message names.",
                        section: Section::Foreign,
                        policies: &[],
                    },
                }
            }
        }
    };
}

impl Reason {
    /// Whether this follows from it.
    #[must_use]
    pub fn has(&self, policy: Policy) -> bool {
        self.about().policies.contains(&policy)
    }

    /// Whether people, or something that nobody knows, hold something back: that is no failure.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.about().class == Class::Held
    }

    /// Whether it concerns all work at a vCenter. The alerts about vCenter watch these reasons, and a pool reports one of them
    /// before it reports what is wrong with a single object.
    #[must_use]
    pub fn concerns_whole_vcenter(&self) -> bool {
        self.has(Policy::Account) || self.has(Policy::Away)
    }

    /// Whether it says nothing about the object that met it. A pool reports it once for all of its objects.
    #[must_use]
    pub fn says_nothing_of_its_object(&self) -> bool {
        self.has(Policy::Away) || self.has(Policy::Inside)
    }
}

reasons! {
    Good {
        Reconciled = "Reconciled" => Progress, Nobody,
            "Condition Ready of a pool: the last pass succeeded.",
            "None.";
        Observed = "Observed" => Progress, Nobody,
            "AgentMachineDemandFound: AgentMachines were read and counted.",
            "None.";
        Available = "Available" => Progress, Nobody,
            "InfraEnvAvailable: the InfraEnv offers a discovery ISO.",
            "None.";
        Satisfied = "Satisfied" => Progress, Nobody,
            "CapacitySatisfied: no AgentMachine waits for a host.",
            "None.";
        Ready = "Ready" => Progress, Nobody,
            "VsphereReady: no error is known.",
            "None.";
        IsoReady = "ISOReady" => Progress, Nobody,
            "ISOReady: the ISO is in place.",
            "None.";
        VmCreated = "VMCreated" => Progress, Nobody,
            "Condition Ready of a VsphereAgent: its VM exists.",
            "None.";
        Synced = "Synced" => Progress, Nobody,
            "Condition ConfigSynced of a VsphereAgent: the VM has the hardware that its pool wants.",
            "None.";
        NodesMatch = "NodesMatch" => Progress, Nobody,
            "NodesConsistent: each Node of the hosted cluster fits to the VMs.",
            "None.";
        CreateRequested = "CreateRequested" => Progress, Nobody,
            "Nothing is recorded about the VM yet.",
            "None.";
        VmCreatePending = "VMCreatePending" => Progress, Nobody,
            "The VM is being created.",
            "None.";
        AgentAvailable = "AgentAvailable" => Progress, Nobody,
            "The Agent has registered.",
            "None.";
        AgentPrepared = "AgentPrepared" => Progress, Nobody,
            "The Agent has labels, role, hostname and approval.",
            "None.";
        AgentReleased = "AgentReleased" => Progress, Nobody,
            "The Agent's Machine has freed it.",
            "None.";
    }
    Demand {
        CreateCapReached = "CreateCapReached" => Waits, PoolOwner,
            "A limit of the pool is reached. The message has the limit.",
            "Raise spec.scaling, or wait until VMs go. Limit how many VMs there are (docs/how-to/limit-vms.md) says what counts.";
        CreateQueued = "CreateQueued" => Progress, Nobody,
            "VMs of the pool wait until their vCenter may run one more task. The message has the limit, and how many wait.",
            "None. If it lasts, look at the tasks in vCenter, or raise the flag in the message (docs/how-to/limit-vms.md).";
        PoolConflict = "PoolConflict" => Refused, PoolOwner,
            "Two pools claim the same AgentMachine. Neither acts.",
            "Change spec.nodePoolRef of one pool.";
        NamespaceNotAllowed = "NamespaceNotAllowed" => Refused, Hub,
            "A namespace does not admit the pool, or is not among --namespaces. The message names it.",
            "Several tenants (docs/how-to/several-tenants.md): annotate that Namespace, or serve it.";
        InvalidSpec = "InvalidSpec" => Refused, PoolOwner,
            "spec.agent.labels has a key that belongs to another service, or spec.agent.nodeLabels one that no Node may get. Also: spec.iso or a value of spec.vsphere cannot be used.",
            "Change what the message names.";
        ProviderNotAccepting = "ProviderNotAccepting" => Waits, Hub,
            "The agent provider has not added its finalizer to the AgentMachine for a minute.",
            "The provider and Cluster API of the hosted cluster do not fit together. Read the provider's log.";
        ConditionsMissing = "ConditionsMissing" => Waits, Hub,
            "The provider writes no conditions. One VM is tried.",
            "The CRD of AgentMachines has another version than the provider. Align them.";
        SelectorUnsatisfiable = "SelectorUnsatisfiable" => Refused, PoolOwner,
            "The NodePool's selector contradicts spec.agent.labels.",
            "Make them agree.";
        AgentSearchFailed = "AgentSearchFailed" => Waits, Hub,
            "An error keeps the provider from looking for an Agent. The message is that error.",
            "Correct what it names: the AgentCluster or its clusterDeploymentRef. Read the provider's log.";
        Deleting = "Deleting" => Progress, Nobody,
            "The AgentMachine is being deleted.",
            "None.";
        NotWaiting = "NotWaiting" => Progress, Nobody,
            "The AgentMachine does not report that no Agent suits it.",
            "None.";
        MachinePending = "MachinePending" => Waits, Hub,
            "The AgentMachine has no owner Machine yet.",
            "Look at its owner references and at the log of Cluster API.";
        DemandDeficit = "DemandDeficit" => Progress, Nobody,
            "Hosts are missing and are being made.",
            "None. status.waitingOn says why one does not come.";
        Debouncing = "Debouncing" => Progress, Nobody,
            "The operator waits half a second before it reacts.",
            "None.";
        FreeAgentFits = "FreeAgentFits" => Progress, Nobody,
            "A free Agent fits. The provider gets a minute to take it. With spec.hosts.countForeign, a host that is not a VM of \
             agent-forge is left to it as long as that host is free.",
            "None. If it stays, find out why the provider does not bind that Agent.";
        Offered = "Offered" => Progress, Nobody,
            "The AgentMachine of a VM is gone. The VM is kept for ten seconds for the next one.",
            "None.";
        SurplusKept = "SurplusKept" => Progress, Nobody,
            "No AgentMachine needs this VM, but another one of the pool asks for a host.",
            "None. It gets that one, or it is removed.";
        NodePoolMoved = "NodePoolMoved" => Progress, Nobody,
            "nodePoolRef was changed. The VM belongs to an AgentMachine of the old NodePool.",
            "None. It is released when no Machine has it.";
        HostOfAnotherPool = "HostOfAnotherPool" => Progress, Nobody,
            "A VsphereAgent of another pool serves this AgentMachine. This pool makes a VM when the other is gone.",
            "None. If the other one stays, its status says why. You may delete it.";
        AgentElsewhere = "AgentElsewhere" => Waits, Hub,
            "The Agent of this VM serves an AgentMachine of another control plane. The original AgentMachine gets another VM.",
            "Give each NodePool that shares the namespace of Agents its own agentLabelSelector.";
        NoAgentMachine = "NoAgentMachine" => Refused [Absent], PoolOwner,
            "The VsphereAgent names no AgentMachine.",
            "Delete it.";
        PoolNotFound = "PoolNotFound" => Refused [Absent], PoolOwner,
            "spec.poolRef names no pool.",
            "Create the pool again, or delete the VsphereAgent.";
        ClusterIdChanged = "ClusterIDChanged" => Refused [Useless, Stuck], Operator,
            "The record has another cluster id than this operator. No VM is touched.",
            "Start with --cluster-id of the old hub. See restore a hub (docs/how-to/restore-a-hub.md).";
    }
    InfraEnv {
        InfraEnvNotFound = "InfraEnvNotFound" => Refused, PoolOwner,
            "The InfraEnv does not exist.",
            "Check spec.infraEnvRef.";
        IsoUrlPending = "ISOURLPending" => Waits, Hub,
            "The InfraEnv has no ISO URL yet.",
            "Look at the InfraEnv's conditions.";
        LateBindingUnavailable = "LateBindingUnavailable" => Refused, PoolOwner,
            "spec.clusterRef of the InfraEnv is set, so its hosts belong to that cluster. No new VM is made.",
            "Name an InfraEnv without clusterRef.";
        AutoApproveDefeatsFence = "AutoApproveDefeatsFence" => Refused, Hub,
            "The InfraEnv approves Agents itself, and a selector asks for no label. An Agent could be chosen while its Machine is being deleted. No new VM is made.",
            "Give that NodePool an agentLabelSelector, or switch spec.agentApproval.autoApprove off.";
        ImageNotCreated = "ImageNotCreated" => Waits, Hub,
            "The InfraEnv's condition ImageCreated is False. No ISO is fetched, no new VM is made.",
            "Correct what that condition says.";
        IsoStale = "ISOStale" => Progress, Nobody,
            "The ISO's version is not the InfraEnv's spec.osImageVersion. No new VM is made.",
            "Wait for the new image. The InfraEnv's conditions say why it does not come.";
        IsoSourceChanged = "ISOSourceChanged" => Progress, Nobody,
            "The ISO on the datastore comes from another InfraEnv, or from a deleted one of that name. No new VM is made.",
            "Wait until the new ISO is there: condition ISOReady.";
    }
    Iso {
        IsoUploading = "ISOUploading" | IsoNotReady = "IsoNotReady" => Progress, Nobody,
            "The ISO is on its way to the datastore. It may wait for the ISO of the pool that the message names.",
            "None while agent_forge_iso_transfer_bytes moves.";
        IsoQueued = "ISOQueued" | IsoChecking = "ISOChecking" | IsoFetching = "ISOFetching" | IsoPublishing = "ISOPublishing" => Progress, Nobody,
            "What the ISO actor does now, in /actors: it waits for its turn, searches the datastore, downloads, or gives the file its final name.",
            "None.";
        WaitingForVsphere = "WaitingForVsphere" => Waits, Network,
            "vCenter does not answer, so the datastore is out of reach.",
            "See VsphereReady.";
        InvalidIsoUrl = "InvalidISOURL" => Refused, Hub,
            "status.isoDownloadURL of the InfraEnv is no http(s) URL.",
            "Correct the image service.";
        InvalidPath = "InvalidPath" => Refused, PoolOwner,
            "The path on the datastore cannot be used.",
            "Correct spec.iso.pathPrefix.";
        IsoDownloadFailed = "ISODownloadFailed" => Waits, Hub,
            "HTTP error, broken connection, missing bytes, or an untrusted certificate.",
            "Check the image service. For a private CA: spec.iso.caBundleRef or --iso-ca-file.";
        IsoCaBundleMissing = "ISOCABundleMissing" => Refused, PoolOwner,
            "spec.iso.caBundleRef names no ConfigMap or key in the pool's namespace.",
            "Create it. The operator reads it again within half a minute.";
        InvalidIsoCaBundle = "InvalidISOCABundle" => Refused, PoolOwner,
            "The ConfigMap has no certificate.",
            "Correct it.";
        IsoLengthMismatch = "ISOLengthMismatch" => Refused, Hub,
            "The image has another length than declared, or is shorter than its own volume descriptor says.",
            "Look for a proxy that cuts, or for a broken file on the server.";
        IsoLengthMissing = "ISOLengthMissing" => Refused, Hub,
            "The server declares no length.",
            "Use a server that does.";
        IsoTooLarge = "ISOTooLarge" => Refused, Operator,
            "The image is larger than --iso-max-bytes (4 GiB).",
            "Raise the limit.";
        IsoWrongMagic = "ISOWrongMagic" => Refused, Hub,
            "The file is not an ISO 9660 image.",
            "Check the URL: a proxy may answer with a page of its own.";
        IsoStalled = "ISOStalled" => Waits, Network,
            "Less than 256 KiB in --iso-stall-timeout (30 s), or longer than --iso-deadline (1 h).",
            "Check the network between hub and image service.";
        IsoDownloadStalled = "ISODownloadStalled" => Waits, Network,
            "Nothing comes from the image server for 60 s.",
            "Check the network between hub and image service.";
        IsoUploadStalled = "ISOUploadStalled" => Waits, Network,
            "vCenter takes nothing for 60 s, or the datastore is busy for 5 minutes after the last byte.",
            "Check network and load of vCenter and its hosts.";
        IsoUploadIncomplete = "ISOUploadIncomplete" => Waits, Vcenter,
            "The file on the datastore is missing or too short. Also: no pool could record the final name for 10 minutes.",
            "None at first. If it stays, check the datastore and the API server.";
        IsoFileConflict = "ISOFileConflict" => Waits, Vcenter,
            "A file with that digest as name has another size. It is never overwritten.",
            "Delete or rename that file.";
        IsoAddressNotAllowed = "ISOAddressNotAllowed" => Refused, Hub,
            "The URL leads to a loopback, link-local or metadata address, also after a redirect.",
            "Use a proper address. --iso-allow-local-source is for labs.";
        IsoCacheRestarting = "ISOCacheRestarting" | IsoCacheUnavailable = "ISOCacheUnavailable" => Progress, Nobody,
            "The actor of that datastore restarts.",
            "None. If it stays, see the alert AgentForgeRestartStorm.";
        EjectFailed = "EjectFailed" => Waits [Optional], Vcenter,
            "The discovery ISO could not be taken out of the drive of an installed host. Nothing waits for that.",
            "The message names the missing privilege or the open question.";
    }
    Access {
        SecretNotFound = "SecretNotFound" => Refused [Account], PoolOwner,
            "The Secret or a key in it is missing.",
            "Create it.";
        SecretNamespaceRefused = "SecretNamespaceRefused" => Refused [Account], Hub,
            "A Secret of another namespace does not admit the pool.",
            "Annotate the Secret with agent-forge.containeroo.ch/allow-pools-from. It has to be within --secret-namespaces, if that is set.";
        InvalidCredentials = "InvalidCredentials" => Refused [Account, NoMatterWhere], PoolOwner,
            "vCenter refuses user or password. Or a key of the Secret has a value that cannot be used. The message names Secret, server and user.",
            "Correct the Secret. It is tried within 30 s. After two refusals in 10 minutes the message says when.";
        LoginLimited = "LoginLimited" => Progress [Account, NoMatterWhere], Nobody,
            "Two logins of that user were refused within 10 minutes or have no answer yet, at any name of that vCenter. A third one could lock the account.",
            "Look for other Secrets with that user, also with another name of that vCenter. The message says when the next try is.";
        CredentialsNotHeld = "CredentialsNotHeld" => Waits, PoolOwner,
            "The Secret is missing, is being deleted, or the operator may not patch it. No VM is made with it.",
            "See the pool's conditions and config/rbac/credentials_role.yaml.";
        VcenterNotAllowed = "VCenterNotAllowed" => Refused [Away, NoMatterWhere], Operator,
            "The Secret's server is not among --allowed-vcenters, or leads to a loopback, link-local or metadata address. Nothing was sent.",
            "Name the vCenter's own address. --vsphere-allow-local-server is for labs.";
        UntrustedCertificate = "UntrustedCertificate" => Refused [Away, NoMatterWhere], PoolOwner,
            "vCenter's certificate is not trusted. Nothing was sent.",
            "Put the CA into caBundle, or the SHA-256 digest into thumbprint.";
        VcenterUnreachable = "VCenterUnreachable" => Waits [Away, NoMatterWhere], Network,
            "There is no connection. A host that --allowed-vcenters does not name has this reason for each failure to connect or to begin a login.",
            "None for an outage: work continues by itself. Else check name, route, port 443, proxy and certificate. The operator's log and agent-forge doctor have the cause.";
        VcenterNoAnswer = "VCenterNoAnswer" => Waits [Away], Network,
            "A request was sent and not answered.",
            "None for an outage: work continues by itself. Else check route, proxy and the load of vCenter.";
        VcenterUnavailable = "VCenterUnavailable" => Waits [Away], Vcenter,
            "A gateway answers for vCenter (502, 503).",
            "Check vCenter's services.";
        VcenterReplyUnusable = "VCenterReplyUnusable" => Defect, Vcenter,
            "The answer cannot be read, is too large or never ends. Other pools continue.",
            "Does server name a vCenter? Is a proxy in between? Else report it with the log.";
        NotAuthenticated = "NotAuthenticated" => Waits [Account, NoMatterWhere], Vcenter,
            "vCenter takes neither the session that it gave nor the next one.",
            "Is the account locked? Does another tool end its sessions?";
        ServerMismatch = "ServerMismatch" => Refused, PoolOwner,
            "The Secret leads to another vCenter than the one that has the VM.",
            "Rename a vCenter (docs/how-to/rename-a-vcenter.md).";
        NoPermission = "NoPermission" => Waits [Account], Vcenter,
            "A privilege is missing. The message names privilege and object.",
            "Grant it. Privileges (docs/reference/vsphere.md#privileges) lists the whole role.";
    }
    Place {
        VsphereObjectNotFound = "VsphereObjectNotFound" => Refused, PoolOwner,
            "A name in spec.vsphere does not exist, or the user cannot see it. The message names field and value.",
            "Correct the name or grant read access.";
        InvalidArgument = "InvalidArgument" => Refused, PoolOwner,
            "vCenter refuses a value, for example an unknown guestID or more processors than a host has.",
            "Correct the field that the message names. A VM that serves keeps its hardware: delete its Machine.";
        NoDiskSpace = "NoDiskSpace" => Waits, Vcenter,
            "The datastore that the message names is full, or would keep less than --min-free-datastore-gib.",
            "Free space, or name another datastore. It is tried again by itself.";
        InsufficientResources = "InsufficientResources" => Waits, Vcenter,
            "No host has room.",
            "Free resources, or name another place. It is tried again by itself.";
        NameConflict = "NameConflict" => Waits [Useless, Stuck], Vcenter,
            "Another VM in the folder has that name and is not the operator's. It is left alone. The pool's own Ready stays True.",
            "Rename, move or remove it. Or choose another spec.vsphere.folder or datacenter.";
        TaggingFailed = "TaggingFailed" => Waits [Optional], PoolOwner,
            "A tag of vmTags cannot be attached. The VM serves without it (status.vm.tagsMissing).",
            "Correct the id or grant the privilege. It is tried until all tags are attached.";
        VmFolderDeleted = "VMFolderDeleted" => Waits, Vcenter,
            "Somebody deleted the VM folder. A VM that has not served is made again with its folder.",
            "For a host that served: delete its Machine. Deletions continue.";
        FolderNotVisible = "FolderNotVisible" => Waits, Vcenter,
            "The account does not see the VM's folder, so nothing is known about the VM.",
            "Give it read access to the folder that the message names.";
    }
    Vm {
        VmBusy = "VMBusy" => Waits, Vcenter,
            "A task on the VM has not ended for two minutes, or another task blocks it for half a minute.",
            "In the vSphere client, look at the VM's recent tasks and questions. Answer, cancel or wait. It continues when the task ends.";
        VmMissing = "VMMissing" => Waits [Useless], Vcenter,
            "The VM of a host that serves or served was deleted in vCenter.",
            "Bring it back, or delete its Machine.";
        VmPoweredOff = "VMPoweredOff" => Waits [Told], Vcenter,
            "The VM of a host that serves or served was switched off.",
            "Switch it on, or delete its Machine. With spec.power: EnsureOn it is switched on after a second look (docs/how-to/power.md).";
        PowerOnLimited = "PowerOnLimited" => Waits [Told], Vcenter,
            "spec.power: EnsureOn has switched the VM on three times within an hour, and it is off again.",
            "Find out who switches it off. Pause the VM if that is right.";
        BootOrderRepaired = "BootOrderRepaired" => Progress, Nobody,
            "The guest booted the discovery ISO although its disk is installed. The VM was reset, and its host is to come up from its disk.",
            "None for 40 minutes. See boot order (docs/how-to/boot-order.md).";
        BootOrderWrong = "BootOrderWrong" => Waits [Told], Vcenter,
            "The guest booted the discovery ISO instead of its disk, and the Agent says so 40 minutes after a reset. Or the VM has no disk, or nothing in vCenter shows why. The message has its devices.",
            "Let the VM boot its disk and restart it, or delete its Machine. See boot order (docs/how-to/boot-order.md).";
        PowerOnScheduled = "PowerOnScheduled" => Progress, Nobody,
            "The VM is made, and is switched on at spec.powerOnAfter of the pool.",
            "None. To switch it on now, remove spec.powerOnAfter.";
        MovingToPool = "MovingToPool" => Progress, Nobody,
            "A person gives the host to another pool (annotation agent-forge.containeroo.ch/move-to). It goes there when no Machine has it and it is ready again.",
            "None. To take it back: agent-forge move --cancel. See move a host (docs/how-to/move-a-host.md).";
        MoveUnreadable = "MoveUnreadable" => Waits [Told], PoolOwner,
            "An annotation of the VsphereAgent that gives its host to another pool cannot be read, and has no effect. The message says which one.",
            "Correct it, or remove agent-forge.containeroo.ch/move-to. agent-forge move writes these annotations.";
        StartsAfterPool = "StartsAfterPool" => Progress, Nobody,
            "The VM is made, and is switched on when the pools that spec.scaling.startAfter names run. The message says which one does not, and what it lacks.",
            "None if that pool is on its way. Else see to that pool, or take it out of spec.scaling.startAfter.";
        VmSuspended = "VMSuspended" => Waits [Seen], Vcenter,
            "Somebody suspended the VM. One that has not served is resumed. One that served is left alone.",
            "Resume it, or power it off. The operator looks every minute.";
        VmInaccessible = "VMInaccessible" => Waits, Vcenter,
            "vCenter shows no configuration of a VM that is or may be the operator's. Nothing is made, switched or removed.",
            "Bring its datastore or host back. If it is lost for good, remove it from the inventory.";
        VmAdopted = "VMAdopted" => Waits, PoolOwner,
            "The operator did not make this VM, and nobody has asked to adopt it. It is left alone.",
            "See adopt a VM (docs/how-to/adopt-a-vm.md) if the operator should care for it.";
        AdoptionUnproven = "AdoptionUnproven" => Waits [Useless, Stuck], PoolOwner,
            "A person asks to adopt a VM that the operator did not make, and a proof is missing. Nothing is touched.",
            "The message names what is missing. See adopt a VM (docs/how-to/adopt-a-vm.md).";
        AmbiguousVm = "AmbiguousVM" => Waits [Useless, Stuck], Vcenter,
            "There are copies of the VM. Nothing is touched.",
            "Decide which one is real and remove the mark or the copy.";
        OwnershipUnproven = "OwnershipUnproven" => Waits [Useless, Stuck], Vcenter,
            "There is no proof that the VM is the operator's. Nothing is touched.",
            "See take over from the predecessor (docs/how-to/take-over-from-the-predecessor.md).";
        RecordUnreadable = "RecordUnreadable" => Defect [Useless, Stuck], Operator,
            "status.vm cannot be read. Nothing is made twice.",
            "Restore the status from a backup. Or remove the VM by hand and force the deletion.";
        RecordLost = "RecordLost" => Waits [Stuck], Operator,
            "status.vm is gone while a later attempt's VM exists.",
            "Restore the status from a backup. Or remove the VM by hand and force the deletion. An emptied status of a first attempt repairs itself.";
        MacPending = "MACPending" => Progress, Nobody,
            "vCenter shows no MAC address of the running VM yet.",
            "None. If it stays: does the VM have a network adapter?";
        TaskInProgress = "TaskInProgress" | InvalidPowerState = "InvalidPowerState" | ConcurrentAccess = "ConcurrentAccess" | RequestCanceled = "RequestCanceled" => Progress [NoMatterWhere], Nobody,
            "Somebody else changed, locked, cancelled or removed the object of a call.",
            "None at first. If it stays, look at the recent tasks of the object in the message. A missing ISO is fetched again.";
        FileLocked = "FileLocked" => Progress [File, NoMatterWhere], Nobody,
            "Somebody else changed, locked, cancelled or removed the object of a call.",
            "None at first. If it stays, look at the recent tasks of the object in the message. A missing ISO is fetched again.";
        DuplicateName = "DuplicateName" | AlreadyExists = "AlreadyExists" | ManagedObjectNotFound = "ManagedObjectNotFound" => Progress, Nobody,
            "Somebody else changed, locked, cancelled or removed the object of a call.",
            "None at first. If it stays, look at the recent tasks of the object in the message. A missing ISO is fetched again.";
        FileNotFound = "FileNotFound" => Progress [File], Nobody,
            "Somebody else changed, locked, cancelled or removed the object of a call.",
            "None at first. If it stays, look at the recent tasks of the object in the message. A missing ISO is fetched again.";
        HardwareDrift = "HardwareDrift" => Waits, Vcenter,
            "Somebody changed the hardware of the VM in vCenter since it was made. The message has field, want and have. The operator does not change it back.",
            "Undo it in vCenter. Or change the NodePool, or delete the Machine, to get another VM. See change the template (docs/how-to/change-the-template.md).";
        TemplateChanged = "TemplateChanged" => Waits, PoolOwner,
            "The pool wants other hardware than the VM was made with. The message has field, want and have. A VM that serves is never changed.",
            "Change the NodePool, or delete the Machine, to get a VM with the new template. See change the template (docs/how-to/change-the-template.md).";
        TemplateUnrecorded = "TemplateUnrecorded" => Progress, Nobody,
            "It is not recorded with what hardware the VM was made: the predecessor or an older release made it, or its status was lost.",
            "None. The VM is compared with nothing, and is not replaced when the template changes.";
        Ejected = "Ejected" => Progress, Nobody,
            "Condition ISOEjected: a drive that the predecessor was emptying is empty now.",
            "None.";
    }
    Agent {
        NodesMismatch = "NodesMismatch" => Waits, Hub,
            "NodesConsistent: a Node of the hosted cluster does not fit to the VMs. status.nodes.findings has each finding.",
            "Correct what the findings name. See check Nodes (docs/how-to/check-nodes.md). The operator changes nothing because of them.";
        NodesPending = "NodesPending" => Progress, Nobody,
            "NodesConsistent: the Nodes of the hosted cluster have not been read yet, or some Agents or VMs are unknown.",
            "None.";
        KubeconfigRefused = "KubeconfigRefused" => Refused, PoolOwner,
            "NodesConsistent: the kubeconfig for the Nodes is missing, or has a field that is not accepted. The message names it.",
            "Correct the Secret: check Nodes (docs/how-to/check-nodes.md) shows what it may have. A changed Secret counts within 30 seconds.";
        HostedApiFailed = "HostedAPIFailed" => Waits, Hub,
            "NodesConsistent: the API server of the hosted cluster gives no list of Nodes that can be used. The message has the cause.",
            "Look at the hosted control plane, at the network between, and at the rights of that account.";
        AgentNotDiscovered = "AgentNotDiscovered" => Progress, Nobody,
            "The VM runs. Its guest has not registered yet.",
            "None for a few minutes. Then look at the VM's console.";
        AgentDiscoveryExpired = "AgentDiscoveryExpired" => Waits, Network,
            "The Agent did not register in time, or sent no inventory. The VM is replaced. Without an inventory only a host of the buffer is.",
            "Look at the console: network, DNS, the way from the VM network to the assisted service.";
        ReplacementResting = "ReplacementResting" => Progress, Nobody,
            "The previous VM was given up. The next one waits a while.",
            "None. status.lastFailure says how far it came.";
        ReplacementsExhausted = "ReplacementsExhausted" => Waits [Stuck], PoolOwner,
            "Four VMs were replaced and the fifth did not register either.",
            "Correct the cause in status.lastFailure, then ask for another VM (docs/how-to/replace-or-force-a-vm.md).";
        ReplaceRefused = "ReplaceRefused" => Refused [Told], PoolOwner,
            "You asked for a replacement, but the Agent serves or served, or cleanupPolicy: Retain keeps the VM.",
            "Delete the Machine, or remove the annotation.";
        HostRestarted = "HostRestarted" => Waits [Told], PoolOwner,
            "The guest restarted in the middle of the installation, which failed by that. The VM is left alone.",
            "A MachineHealthCheck replaces the Machine. Without one, delete the Machine.";
        AgentDisconnected = "AgentDisconnected" => Waits [Told, Useless], Network,
            "The guest has been silent for three minutes, so no AgentMachine can claim its Agent. It is replaced after the discovery timeout, in the buffer after 10 minutes, unless it served or may have (docs/how-to/restore-a-hub.md).",
            "Look at the VM's console and network.";
        AgentValidationsFailing = "AgentValidationsFailing" => Waits [Told, Useless], Hub,
            "Validations of a free Agent have failed for five minutes. Another VM would fail too, so it is not replaced unless spec.template changes or it waits in the buffer.",
            "Correct what the message names. After a change of spec.template the VM is replaced. Else (network, DNS, NTP) delete the Machine or ask for another VM.";
        AgentMissing = "AgentMissing" => Waits [Told, Useless], Hub,
            "The Agent of this VM was deleted. If it served, the VM is left alone. Else it is replaced after the discovery timeout.",
            "Restore the Agent from a backup, or delete the Machine.";
        AgentStuck = "AgentStuck" => Waits [Told], Hub,
            "A reserved Agent is in a state that does not end by itself. The message names the state.",
            "See the Agent's conditions. Only the deletion of its Machine sets it free.";
        AgentStateUnknown = "AgentStateUnknown" => Waits, Hub,
            "The Agent shows a state that the operator does not know, or none yet. Its VM is not switched off, reset, renewed, lent or destroyed.",
            "None while its guest registers. If it lasts, look at the assisted service: is it away, or newer than the operator? To remove the VM all the same, force the deletion.";
        RivalAgents = "RivalAgents" => Waits [Seen], Hub,
            "Two Agents match one VM. Neither is labelled or approved.",
            "Find out which one runs on the VM. Delete the other.";
        MacDiffers = "MacDiffers" => Waits [Told], Hub,
            "An Agent matches the VM except for its MAC addresses.",
            "None if you replaced the network card: the operator records the new one within a minute. Else find that host and delete the Agent.";
        AgentUnproven = "AgentUnproven" => Waits, Hub,
            "An Agent matches the VM only in part. It is never approved. If it is bound, it holds the VM's deletion.",
            "Find out which host it is. If it is another host, delete that Agent. If the VM may go, force the deletion.";
        ApprovalRequired = "ApprovalRequired" => Waits, PoolOwner,
            "spec.agent.approve is false.",
            "Approve the Agent that the message names.";
        AgentNotFenced = "AgentNotFenced" | AgentNotInstalled = "AgentNotInstalled" => Progress, Nobody,
            "The Agent changed at the last moment.",
            "None. The operator looks again.";
    }
    Deletion {
        AgentBound = "AgentBound" => Waits, Hub,
            "The Agent serves a Machine, or is bound to one that is gone.",
            "Delete the Machine (scale the NodePool). If the Machine is gone, read why the provider has not unbound the Agent: its log and the conditions of the Agent. Or force the deletion.";
        MachineRemains = "MachineRemains" => Waits, Hub,
            "The VsphereAgent or its pool is being deleted, and its Machine still exists.",
            "Delete the Machine, or wait until its node is drained.";
        MachineDeleting = "MachineDeleting" => Progress, Nobody,
            "The Machine is being deleted or gone. Nothing more is built.",
            "None.";
        MachineDeleted = "MachineDeleted" => Progress [Absent], Nobody,
            "The Machine is being deleted or gone. Nothing more is built.",
            "None.";
        MachineStateUnknown = "MachineStateUnknown" => Waits [Seen], Hub,
            "It could not be proven that the Machine is gone. A VM that served stays until that is proven.",
            "Give the operator what it could not read, or see restore a hub (docs/how-to/restore-a-hub.md).";
        MachineVanishedPaused = "MachineVanishedPaused" => Waits, Hub,
            "The Machine is gone and its Agent is still bound (paused or not), or went without being seen unbound. The VM may be a node of another hub. It is not touched.",
            "To keep the VM: set cleanupPolicy: Retain in the pool and delete the VsphereAgent. To destroy it: force the deletion.";
        Recycling = "Recycling" => Progress, Nobody,
            "The VM is made ready for another life: its guest is to boot the discovery ISO again.",
            "None. If its Agent does not come back within the discovery timeout, the VM is replaced.";
        HostLent = "HostLent" => Progress, Nobody,
            "A pool of another namespace uses the host, and this pool waits for it. Or a release before 1.0 gave the host to another VsphereAgent: nothing is done to it here, and this VsphereAgent goes.",
            "None. If it lasts, read the status of the pool or VsphereAgent that the message names.";
        TakingHost = "TakingHost" => Progress, Nobody,
            "Nobody knows yet whether an AgentMachine got the host of another pool, so it gets no other one. Or a release before 1.0 was taking the VM of another VsphereAgent over. What became of it shows within some minutes.",
            "None while that passes. To give the host up, delete the VsphereAgent with force-delete.";
        RecordOutdated = "RecordOutdated" => Waits [Seen], Hub,
            "The VM says in vCenter that it may serve an AgentMachine that this hub does not know of. The record is older than that, as after a restore of the hub. The guest may be a node: the VM is left alone.",
            "Find out whether the guest is a node, see restore a hub (docs/how-to/restore-a-hub.md). Then allow the replacement, or force the deletion.";
        HistoryUnclear = "HistoryUnclear" => Held [NoMatterWhere], Nobody,
            "A watch had to list again, as after a restore of the API server. Nothing is ended or reset until all kinds were listed again.",
            "None. If it lasts, look for errors of watches in the operator's log.";
        WaitingForGuest = "WaitingForGuest" => Waits, Hub,
            "The Agent's deletion hook waits for the guest, and the VM runs.",
            "None while the node leaves. If the guest is dead, switch the VM off.";
        Retained = "Retained" => Held, PoolOwner,
            "cleanupPolicy: Retain or skip-delete keeps VM and Agent although no Machine has them. Or disk: Keep keeps its data: the VM cannot be made ready for its next life, is outdated or old, or has data of another hosted cluster.",
            "Take off what keeps it, and it goes on. If you delete the VsphereAgent, a VM that is kept stays: remove it by hand. One that only its data holds goes. If the vCenter is gone for good, force the deletion.";
        ChildrenRemain = "ChildrenRemain" => Waits, PoolOwner,
            "The pool is being deleted and still has VsphereAgents.",
            "status.waitingOn says what holds them.";
    }
    Holds {
        Paused = "Paused" => Held [NoMatterWhere], Holder,
            "The object is paused, or something that it belongs to. The message names the source and the end. An AgentMachine that is paused requests no host.",
            "None while you want it so. To go on, remove what the message names.";
        PausedUntilInvalid = "PausedUntilInvalid" => Refused, Hub,
            "Paused: a spec.pausedUntil is neither a boolean nor a time in RFC 3339. It pauses nothing.",
            "Correct the value.";
        Vetoed = "Vetoed" => Held [NoMatterWhere], Holder,
            "Annotations forbid that the VM is deleted, or switched on. The message lists them.",
            "Ask each holder to remove its annotation.";
        DryRun = "DryRun" => Held [NoMatterWhere], PoolOwner,
            "spec.dryRun of the pool, or --dry-run: it is planned and not done.",
            "None while you want it so. See what the operator would do (docs/how-to/dry-run.md) explains how to go on.";
    }
    Byoh {
        ScriptsNotAwaited = "ScriptsNotAwaited" => Waits, HostOwner,
            "BYOH does not ask for the scripts yet, so the config is left as it is. The message says what is missing: the ByoMachine, its host, or what that host says of itself.",
            "Look at the condition BYOHostReady of the ByoMachine, and at the log of BYOH.";
        HostUnsupported = "HostUnsupported" => Refused, HostOwner,
            "There are no built-in scripts for the system, architecture or version of Kubernetes of this host. There is no Secret.",
            "Use scripts of your own (scriptsFrom), or another host. A config does not change: make another template and another ByoMachine.";
        ScriptsMissing = "ScriptsMissing" => Refused, HostOwner,
            "The ConfigMap with the scripts, or one of its keys install and uninstall, is missing.",
            "Create it. It is looked for again each minute.";
        ScriptRefused = "ScriptRefused" => Refused, HostOwner,
            "A script of the ConfigMap has a template action that the host could not carry out. The message has its line. There is no Secret.",
            "Correct the script. Only {{.BundleDownloadPath}} may appear between double braces.";
        SecretTaken = "SecretTaken" => Refused, HostOwner,
            "There is a Secret with the name that the scripts would get, and it is not this config's, or its scripts are others. It is left alone.",
            "Find out whose it is. Remove it if nobody needs it.";
        HostNamesSecret = "HostNamesSecret" => Waits, HostOwner,
            "The config is being deleted, and a ByoHost still names its Secret in spec.installationSecret. It may need the scripts.",
            "None while the host leaves. If it is lost, delete the ByoHost, or name it in the annotation agent-forge.containeroo.ch/lost-host of the config.";
    }
    Operator {
        SessionActorRestarting = "SessionActorRestarting" | PlacementActorRestarting = "PlacementActorRestarting" => Progress [Inside], Nobody,
            "A part of the operator restarts.",
            "None. If it stays, see the alert AgentForgeRestartStorm.";
        PlacementQueued = "PlacementQueued" => Progress [Inside], Nobody,
            "The search for host and datastore of a VM has not ended within five minutes. Other VMs of the vCenter come first, or it answers slowly.",
            "None. If it stays, look at the vCenter's load and at its recent tasks.";
        NamespaceTooLarge = "NamespaceTooLarge" => Held [NoMatterWhere], Operator,
            "The namespace that the message names has more objects than the operator keeps in memory, so a part of it is unknown. Nothing that depends on it is made or ended.",
            "Remove what nobody needs there. The log names what is left out. Or raise --max-namespace-cache-mib or --max-namespace-objects, and the memory limit of the Pod.";
        EffectHeld = "EffectHeld" => Progress [Inside, NoMatterWhere], Nobody,
            "The Lease has too little time left for this call, or what was read for it is too old by now.",
            "None.";
        Stopping = "Stopping" => Progress, Nobody,
            "The process stops.",
            "None.";
        ApiServerUnavailable = "APIServerUnavailable" | NotFound = "NotFound" | Conflict = "Conflict" => Progress, Nobody,
            "The API server's answer to a write.",
            "None. It is tried again.";
        Forbidden = "Forbidden" => Waits, Operator,
            "The operator has no right for a write.",
            "Apply config/rbac.";
        Invalid = "Invalid" => Defect, Operator,
            "The API server refuses an object.",
            "CRDs of another version, or an admission webhook that the message names.";
        InternalError = "InternalError" => Defect, Operator,
            "An unreadable answer of the API server, or a defect.",
            "Report it with the log.";
    }
}

impl Default for Reason {
    fn default() -> Self {
        Self::Other(String::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_has_to_end_goes_on_without_help() {
        for reason in Reason::ALL {
            let about = reason.about();
            let alone = [Class::Progress, Class::Held].contains(&about.class);
            let nobody = about.who == Who::Nobody;
            assert!(!nobody || alone, "{reason}: {:?}", about.class);
        }
    }
}
