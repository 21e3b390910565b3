//! The table. A row: reasons, who can end the wait, meaning, remedy.

use agent_forge_crds::conditions::Reason;

use super::{About, Section, Who};

macro_rules! reasons {
    ($($section:ident { $($($name:ident)|+ => $who:ident, $meaning:literal, $remedy:literal;)* })*) => {
        /// What people need to know about that reason.
        #[must_use]
        pub const fn about(reason: &Reason) -> About {
            match reason {
                $($($(Reason::$name)|+ => About {
                    meaning: $meaning,
                    who: Who::$who,
                    remedy: $remedy,
                    section: Section::$section,
                },)*)*
                Reason::Other(_) => About {
                    meaning: "vCenter gave this name to its fault. The message has vCenter's sentence.",
                    who: Who::Vcenter,
                    remedy: "Correct what the message names.",
                    section: Section::Foreign,
                },
            }
        }
    };
}

reasons! {
    Good {
        Reconciled => Nobody, "Condition Ready of a pool: the last pass succeeded.",
            "None.";
        Observed => Nobody, "AgentMachineDemandFound: AgentMachines were read and counted.",
            "None.";
        Available => Nobody, "InfraEnvAvailable: the InfraEnv offers a discovery ISO.",
            "None.";
        Satisfied => Nobody, "CapacitySatisfied: no AgentMachine waits for a host.",
            "None.";
        Ready => Nobody, "VsphereReady: no error is known.",
            "None.";
        IsoReady => Nobody, "ISOReady: the ISO is in place.",
            "None.";
        VmCreated => Nobody, "Condition Ready of a VsphereAgent: its VM exists.",
            "None.";
        Synced => Nobody, "Condition ConfigSynced of a VsphereAgent: the VM has the hardware that its pool wants.",
            "None.";
        CreateRequested => Nobody, "Nothing is recorded about the VM yet.",
            "None.";
        VmCreatePending => Nobody, "The VM is being created.",
            "None.";
        AgentAvailable => Nobody, "The Agent has registered.",
            "None.";
        AgentPrepared => Nobody, "The Agent has labels, role, hostname and approval.",
            "None.";
        AgentReleased => Nobody, "The Agent's Machine has freed it.",
            "None.";
    }
    Demand {
        CreateCapReached => PoolOwner, "A limit is reached. At an AgentMachine: one of the pool. At a VsphereAgent: the one on creates at once in its vCenter. The message has the limit.",
            "At an AgentMachine: raise spec.scaling, or wait until VMs go. At a VsphereAgent: wait, or raise the flag in the message. Limit how many VMs there are (docs/how-to/limit-vms.md) says what counts.";
        PoolConflict => PoolOwner, "Two pools claim the same AgentMachine. Neither acts.",
            "Change spec.nodePoolRef of one pool.";
        NamespaceNotAllowed => Hub, "A namespace does not admit the pool, or is not among --namespaces. The message names it.",
            "Several tenants (docs/how-to/several-tenants.md): annotate that Namespace, or serve it.";
        InvalidSpec => PoolOwner, "spec.agent.labels has a key that belongs to another service. Also: spec.iso or a value of spec.vsphere cannot be used.",
            "Change what the message names.";
        ProviderNotAccepting => Hub, "The agent provider has not added its finalizer to the AgentMachine for a minute.",
            "The provider and Cluster API of the hosted cluster do not fit together. Read the provider's log.";
        ConditionsMissing => Hub, "The provider writes no conditions. One VM is tried.",
            "The CRD of AgentMachines has another version than the provider. Align them.";
        SelectorUnsatisfiable => PoolOwner, "The NodePool's selector contradicts spec.agent.labels.",
            "Make them agree.";
        AgentSearchFailed => Hub, "An error keeps the provider from looking for an Agent. The message is that error.",
            "Correct what it names: the AgentCluster or its clusterDeploymentRef. Read the provider's log.";
        Deleting => Nobody, "The AgentMachine is being deleted.",
            "None.";
        NotWaiting => Nobody, "The AgentMachine does not report that no Agent suits it.",
            "None.";
        MachinePending => Hub, "The AgentMachine has no owner Machine yet.",
            "Look at its owner references and at the log of Cluster API.";
        DemandDeficit => Nobody, "Hosts are missing and are being made.",
            "None. status.waitingOn says why one does not come.";
        Debouncing => Nobody, "The operator waits half a second before it reacts.",
            "None.";
        FreeAgentFits => Nobody, "A free Agent fits. The provider gets a minute to take it.",
            "None.";
        Offered => Nobody, "The AgentMachine of a VM is gone. The VM is kept for ten seconds for the next one.",
            "None.";
        SurplusKept => Nobody, "No AgentMachine needs this VM, but another one of the pool asks for a host.",
            "None. It gets that one, or it is removed.";
        NodePoolMoved => Nobody, "nodePoolRef was changed. The VM belongs to an AgentMachine of the old NodePool.",
            "None. It is released when no Machine has it.";
        HostOfAnotherPool => Nobody, "A VsphereAgent of another pool serves this AgentMachine. This pool makes a VM when the other is gone.",
            "None. If the other one stays, its status says why. You may delete it.";
        AgentElsewhere => Hub, "The Agent of this VM serves an AgentMachine of another control plane. The original AgentMachine gets another VM.",
            "Give each NodePool that shares the namespace of Agents its own agentLabelSelector.";
        NoAgentMachine => PoolOwner, "The VsphereAgent names no AgentMachine.",
            "Delete it.";
        PoolNotFound => PoolOwner, "spec.poolRef names no pool.",
            "Create the pool again, or delete the VsphereAgent.";
        ClusterIdChanged => Operator, "The record has another cluster id than this operator. No VM is touched.",
            "Start with --cluster-id of the old hub. See restore a hub (docs/how-to/restore-a-hub.md).";
    }
    InfraEnv {
        InfraEnvNotFound => PoolOwner, "The InfraEnv does not exist.",
            "Check spec.infraEnvRef.";
        IsoUrlPending => Hub, "The InfraEnv has no ISO URL yet.",
            "Look at the InfraEnv's conditions.";
        LateBindingUnavailable => PoolOwner, "spec.clusterRef of the InfraEnv is set, so its hosts belong to that cluster. No new VM is made.",
            "Name an InfraEnv without clusterRef.";
        AutoApproveDefeatsFence => Hub, "The InfraEnv approves Agents itself, and a selector asks for no label. An Agent could be chosen while its Machine is being deleted. No new VM is made.",
            "Give that NodePool an agentLabelSelector, or switch spec.agentApproval.autoApprove off.";
        ImageNotCreated => Hub, "The InfraEnv's condition ImageCreated is False. No ISO is fetched, no new VM is made.",
            "Correct what that condition says.";
        IsoStale => Nobody, "The ISO's version is not the InfraEnv's spec.osImageVersion. No new VM is made.",
            "Wait for the new image. The InfraEnv's conditions say why it does not come.";
        IsoSourceChanged => Nobody, "The ISO on the datastore comes from another InfraEnv, or from a deleted one of that name. No new VM is made.",
            "Wait until the new ISO is there: condition ISOReady.";
    }
    Iso {
        IsoUploading | IsoNotReady => Nobody, "The ISO is on its way to the datastore. It may wait for the ISO of the pool that the message names.",
            "None while agent_forge_iso_transfer_bytes moves.";
        IsoQueued | IsoChecking | IsoFetching | IsoPublishing => Nobody, "What the ISO actor does now, in /actors: it waits for its turn, searches the datastore, downloads, or gives the file its final name.",
            "None.";
        WaitingForVsphere => Network, "vCenter does not answer, so the datastore is out of reach.",
            "See VsphereReady.";
        InvalidIsoUrl => Hub, "status.isoDownloadURL of the InfraEnv is no http(s) URL.",
            "Correct the image service.";
        InvalidPath => PoolOwner, "The path on the datastore cannot be used.",
            "Correct spec.iso.pathPrefix.";
        IsoDownloadFailed => Hub, "HTTP error, broken connection, missing bytes, or an untrusted certificate.",
            "Check the image service. For a private CA: spec.iso.caBundleRef or --iso-ca-file.";
        IsoCaBundleMissing => PoolOwner, "spec.iso.caBundleRef names no ConfigMap or key in the pool's namespace.",
            "Create it. The operator reads it again within half a minute.";
        InvalidIsoCaBundle => PoolOwner, "The ConfigMap has no certificate.",
            "Correct it.";
        IsoLengthMismatch => Hub, "The image has another length than declared, or is shorter than its own volume descriptor says.",
            "Look for a proxy that cuts, or for a broken file on the server.";
        IsoLengthMissing => Hub, "The server declares no length.",
            "Use a server that does.";
        IsoTooLarge => Operator, "The image is larger than --iso-max-bytes (4 GiB).",
            "Raise the limit.";
        IsoWrongMagic => Hub, "The file is not an ISO 9660 image.",
            "Check the URL: a proxy may answer with a page of its own.";
        IsoStalled => Network, "Less than 256 KiB in --iso-stall-timeout (30 s), or longer than --iso-deadline (1 h).",
            "Check the network between hub and image service.";
        IsoDownloadStalled => Network, "Nothing comes from the image server for 60 s.",
            "Check the network between hub and image service.";
        IsoUploadStalled => Network, "vCenter takes nothing for 60 s, or the datastore is busy for 5 minutes after the last byte.",
            "Check network and load of vCenter and its hosts.";
        IsoUploadIncomplete => Vcenter, "The file on the datastore is missing or too short. Also: no pool could record the final name for 10 minutes.",
            "None at first. If it stays, check the datastore and the API server.";
        IsoFileConflict => Vcenter, "A file with that digest as name has another size. It is never overwritten.",
            "Delete or rename that file.";
        IsoAddressNotAllowed => Hub, "The URL leads to a loopback, link-local or metadata address, also after a redirect.",
            "Use a proper address. --iso-allow-local-source is for labs.";
        IsoCacheRestarting | IsoCacheUnavailable => Nobody, "The actor of that datastore restarts.",
            "None. If it stays, see the alert AgentForgeRestartStorm.";
        EjectFailed => Vcenter, "The discovery ISO could not be taken out of the drive of an installed host. Nothing waits for that.",
            "The message names the missing privilege or the open question.";
    }
    Access {
        SecretNotFound => PoolOwner, "The Secret or a key in it is missing.",
            "Create it.";
        SecretNamespaceRefused => Hub, "A Secret of another namespace does not admit the pool.",
            "Annotate the Secret with agent-forge.containeroo.ch/allow-pools-from. It has to be within --secret-namespaces, if that is set.";
        InvalidCredentials => PoolOwner, "vCenter refuses user or password. Or a key of the Secret has a value that cannot be used. The message names Secret, server and user.",
            "Correct the Secret. It is tried within 30 s. After two refusals in 10 minutes the message says when.";
        LoginLimited => Nobody, "Two logins of that user were refused within 10 minutes. A third one could lock the account.",
            "Look for other Secrets with that user. The message says when the next try is.";
        CredentialsNotHeld => PoolOwner, "The Secret is missing, is being deleted, or the operator may not patch it. No VM is made with it.",
            "See the pool's conditions and config/rbac/credentials_role.yaml.";
        VcenterNotAllowed => Operator, "The Secret's server is not among --allowed-vcenters, or leads to a loopback, link-local or metadata address. Nothing was sent.",
            "Name the vCenter's own address. --vsphere-allow-local-server is for labs.";
        UntrustedCertificate => PoolOwner, "vCenter's certificate is not trusted. Nothing was sent.",
            "Put the CA into caBundle, or the SHA-256 digest into thumbprint.";
        VcenterUnreachable => Network, "There is no connection. A host that --allowed-vcenters does not name has this reason for each failure to connect or to begin a login.",
            "None for an outage: work continues by itself. Else check name, route, port 443, proxy and certificate. The operator's log and agent-forge doctor have the cause.";
        VcenterNoAnswer => Network, "A request was sent and not answered.",
            "None for an outage: work continues by itself. Else check route, proxy and the load of vCenter.";
        VcenterUnavailable => Vcenter, "A gateway answers for vCenter (502, 503).",
            "Check vCenter's services.";
        VcenterReplyUnusable => Vcenter, "The answer cannot be read, is too large or never ends. Other pools continue.",
            "Does server name a vCenter? Is a proxy in between? Else report it with the log.";
        NotAuthenticated => Vcenter, "vCenter takes neither the session that it gave nor the next one.",
            "Is the account locked? Does another tool end its sessions?";
        ServerMismatch => PoolOwner, "The Secret leads to another vCenter than the one that has the VM.",
            "Rename a vCenter (docs/how-to/rename-a-vcenter.md).";
        NoPermission => Vcenter, "A privilege is missing. The message names privilege and object.",
            "Grant it. Privileges (docs/reference/vsphere.md#privileges) lists the whole role.";
    }
    Place {
        VsphereObjectNotFound => PoolOwner, "A name in spec.vsphere does not exist, or the user cannot see it. The message names field and value.",
            "Correct the name or grant read access.";
        InvalidArgument => PoolOwner, "vCenter refuses a value, for example an unknown guestID or more processors than a host has.",
            "Correct the field that the message names. A VM that serves keeps its hardware: delete its Machine.";
        NoDiskSpace => Vcenter, "The datastore that the message names is full, or would keep less than --min-free-datastore-gib.",
            "Free space, or name another datastore. It is tried again by itself.";
        InsufficientResources => Vcenter, "No host has room.",
            "Free resources, or name another place. It is tried again by itself.";
        NameConflict => Vcenter, "Another VM in the folder has that name and is not the operator's. It is left alone. The pool's own Ready stays True.",
            "Rename, move or remove it. Or choose another spec.vsphere.folder or datacenter.";
        TaggingFailed => PoolOwner, "A tag of vmTags cannot be attached. The VM serves without it (status.vm.tagsMissing).",
            "Correct the id or grant the privilege. It is tried until all tags are attached.";
        VmFolderDeleted => Vcenter, "Somebody deleted the VM folder. A VM that has not served is made again with its folder.",
            "For a host that served: delete its Machine. Deletions continue.";
        FolderNotVisible => Vcenter, "The account does not see the VM's folder, so nothing is known about the VM.",
            "Give it read access to the folder that the message names.";
    }
    Vm {
        VmBusy => Vcenter, "A task on the VM has not ended for two minutes, or another task blocks it for half a minute.",
            "In the vSphere client, look at the VM's recent tasks and questions. Answer, cancel or wait. It continues when the task ends.";
        VmMissing => Vcenter, "The VM of a host that serves or served was deleted in vCenter.",
            "Bring it back, or delete its Machine.";
        VmPoweredOff => Vcenter, "The VM of a host that serves or served was switched off.",
            "Switch it on, or delete its Machine. With spec.power: EnsureOn it is switched on after a second look (docs/how-to/power.md).";
        PowerOnLimited => Vcenter, "spec.power: EnsureOn has switched the VM on three times within an hour, and it is off again.",
            "Find out who switches it off. Pause the VM if that is right.";
        BootOrderRepaired => Nobody, "The guest booted the discovery ISO although its disk is installed. The VM was reset, and its host is to come up from its disk.",
            "None for 40 minutes. See boot order (docs/how-to/boot-order.md).";
        BootOrderWrong => Vcenter, "The guest booted the discovery ISO instead of its disk, and the Agent says so 40 minutes after a reset. Or the VM has no disk, or nothing in vCenter shows why. The message has its devices.",
            "Let the VM boot its disk and restart it, or delete its Machine. See boot order (docs/how-to/boot-order.md).";
        PowerOnScheduled => Nobody, "The VM is made, and is switched on at spec.powerOnAfter of the pool.",
            "None. To switch it on now, remove spec.powerOnAfter.";
        VmSuspended => Vcenter, "Somebody suspended the VM. One that has not served is resumed. One that served is left alone.",
            "Resume it, or power it off. The operator looks every minute.";
        VmInaccessible => Vcenter, "vCenter shows no configuration of a VM that is or may be the operator's. Nothing is made, switched or removed.",
            "Bring its datastore or host back. If it is lost for good, remove it from the inventory.";
        VmAdopted => PoolOwner, "The predecessor recorded this VM and did not make it. It is left alone.",
            "Set the annotation agent-forge.containeroo.ch/adopt: \"true\" if the operator should own it.";
        AmbiguousVm => Vcenter, "There are copies of the VM. Nothing is touched.",
            "Decide which one is real and remove the mark or the copy.";
        OwnershipUnproven => Vcenter, "There is no proof that the VM is the operator's. Nothing is touched.",
            "See take over from the predecessor (docs/how-to/take-over-from-the-predecessor.md).";
        RecordUnreadable => Operator, "status.vm cannot be read. Nothing is made twice.",
            "Restore the status from a backup. Or remove the VM by hand and force the deletion.";
        RecordLost => Operator, "status.vm is gone while a later attempt's VM exists.",
            "Restore the status from a backup. Or remove the VM by hand and force the deletion. An emptied status of a first attempt repairs itself.";
        MacPending => Nobody, "vCenter shows no MAC address of the running VM yet.",
            "None. If it stays: does the VM have a network adapter?";
        TaskInProgress | FileLocked | InvalidPowerState | ConcurrentAccess | RequestCanceled | DuplicateName | AlreadyExists | FileNotFound | ManagedObjectNotFound => Nobody, "Somebody else changed, locked, cancelled or removed the object of a call.",
            "None at first. If it stays, look at the recent tasks of the object in the message. A missing ISO is fetched again.";
        HardwareDrift => Vcenter, "Somebody changed the hardware of the VM in vCenter since it was made. The message has field, want and have. The operator does not change it back.",
            "Undo it in vCenter. Or change the NodePool, or delete the Machine, to get another VM. See change the template (docs/how-to/change-the-template.md).";
        TemplateChanged => PoolOwner, "The pool wants other hardware than the VM was made with. The message has field, want and have. A VM that serves is never changed.",
            "Change the NodePool, or delete the Machine, to get a VM with the new template. See change the template (docs/how-to/change-the-template.md).";
        TemplateUnrecorded => Nobody, "It is not recorded with what hardware the VM was made: the predecessor or an older release made it, or its status was lost.",
            "None. The VM is compared with nothing, and is not replaced when the template changes.";
        Ejected => Nobody, "Condition ISOEjected: a drive that the predecessor was emptying is empty now.",
            "None.";
    }
    Agent {
        AgentNotDiscovered => Nobody, "The VM runs. Its guest has not registered yet.",
            "None for a few minutes. Then look at the VM's console.";
        AgentDiscoveryExpired => Network, "The Agent did not register in time, or sent no inventory. The VM is replaced. Without an inventory only a host of the buffer is.",
            "Look at the console: network, DNS, the way from the VM network to the assisted service.";
        ReplacementResting => Nobody, "The previous VM was given up. The next one waits a while.",
            "None. status.lastFailure says how far it came.";
        ReplacementsExhausted => PoolOwner, "Four VMs were replaced and the fifth did not register either.",
            "Correct the cause in status.lastFailure, then ask for another VM (docs/how-to/replace-or-force-a-vm.md).";
        ReplaceRefused => PoolOwner, "You asked for a replacement, but the Agent serves or served, or cleanupPolicy: Retain keeps the VM.",
            "Delete the Machine, or remove the annotation.";
        HostRestarted => PoolOwner, "The guest restarted in the middle of the installation, which failed by that. The VM is left alone.",
            "A MachineHealthCheck replaces the Machine. Without one, delete the Machine.";
        AgentDisconnected => Network, "The guest has been silent for three minutes, so no AgentMachine can claim its Agent. It is replaced after the discovery timeout, in the buffer after 10 minutes, unless it served or may have (docs/how-to/restore-a-hub.md).",
            "Look at the VM's console and network.";
        AgentValidationsFailing => Hub, "Validations of a free Agent have failed for five minutes. Another VM would fail too, so it is not replaced unless spec.template changes or it waits in the buffer.",
            "Correct what the message names. After a change of spec.template the VM is replaced. Else (network, DNS, NTP) delete the Machine or ask for another VM.";
        AgentMissing => Hub, "The Agent of this VM was deleted. If it served, the VM is left alone. Else it is replaced after the discovery timeout.",
            "Restore the Agent from a backup, or delete the Machine.";
        AgentStuck => Hub, "A reserved Agent is in a state that does not end by itself. The message names the state.",
            "See the Agent's conditions. Only the deletion of its Machine sets it free.";
        AgentStateUnknown => Hub, "The Agent shows a state that the operator does not know, or none yet. Its VM is not switched off, reset, renewed, lent or destroyed.",
            "None while its guest registers. If it lasts, look at the assisted service: is it away, or newer than the operator? To remove the VM all the same, force the deletion.";
        RivalAgents => Hub, "Two Agents match one VM. Neither is labelled or approved.",
            "Find out which one runs on the VM. Delete the other.";
        MacDiffers => Hub, "An Agent matches the VM except for its MAC addresses.",
            "None if you replaced the network card: the operator records the new one within a minute. Else find that host and delete the Agent.";
        AgentUnproven => Hub, "An Agent matches the VM only in part. It is never approved. If it is bound, it holds the VM's deletion.",
            "Find out which host it is. If it is another host, delete that Agent. If the VM may go, force the deletion.";
        ApprovalRequired => PoolOwner, "spec.agent.approve is false.",
            "Approve the Agent that the message names.";
        AgentNotFenced | AgentNotInstalled => Nobody, "The Agent changed at the last moment.",
            "None. The operator looks again.";
    }
    Deletion {
        AgentBound => Hub, "The Agent serves a Machine, or is bound to one that is gone.",
            "Delete the Machine (scale the NodePool). If the Machine is gone, read why the provider has not unbound the Agent: its log and the conditions of the Agent. Or force the deletion.";
        MachineRemains => Hub, "The VsphereAgent or its pool is being deleted, and its Machine still exists.",
            "Delete the Machine, or wait until its node is drained.";
        MachineDeleting | MachineDeleted => Nobody, "The Machine is being deleted or gone. Nothing more is built.",
            "None.";
        MachineStateUnknown => Hub, "It could not be proven that the Machine is gone. A VM that served stays until that is proven.",
            "Give the operator what it could not read, or see restore a hub (docs/how-to/restore-a-hub.md).";
        MachineVanishedPaused => Hub, "The Machine is gone and its Agent is still bound (paused or not), or went without being seen unbound. The VM may be a node of another hub. It is not touched.",
            "To keep the VM: set cleanupPolicy: Retain in the pool and delete the VsphereAgent. To destroy it: force the deletion.";
        Recycling => Nobody, "The VM is made ready for another life: its guest is to boot the discovery ISO again.",
            "None. If its Agent does not come back within the discovery timeout, the VM is replaced.";
        HostLent => Nobody, "Another pool of the group takes the host over. Nothing is done to it here, and its VsphereAgent goes then.",
            "None. If it lasts, read the status of the VsphereAgent that takes it.";
        TakingHost => Nobody, "The host of another pool of the group is to be taken over, and something holds that back: the message says what.",
            "None while that passes. To give the host up, delete the VsphereAgent with force-delete.";
        RecordOutdated => Hub, "The VM says in vCenter that it may serve an AgentMachine that this hub does not know of. The record is older than that, as after a restore of the hub. The guest may be a node: the VM is left alone.",
            "Find out whether the guest is a node, see restore a hub (docs/how-to/restore-a-hub.md). Then allow the replacement, or force the deletion.";
        HistoryUnclear => Nobody, "A watch had to list again, as after a restore of the API server. Nothing is ended or reset until all kinds were listed again.",
            "None. If it lasts, look for errors of watches in the operator's log.";
        WaitingForGuest => Hub, "The Agent's deletion hook waits for the guest, and the VM runs.",
            "None while the node leaves. If the guest is dead, switch the VM off.";
        Retained => PoolOwner, "cleanupPolicy: Retain or skip-delete keeps VM and Agent although no Machine has them. Or disk: Keep keeps its data: the VM cannot be made ready for its next life, is outdated or old, or has data of another hosted cluster.",
            "Take off what keeps it, and it goes on. If you delete the VsphereAgent, a VM that is kept stays: remove it by hand. One that only its data holds goes. If the vCenter is gone for good, force the deletion.";
        ChildrenRemain => PoolOwner, "The pool is being deleted and still has VsphereAgents.",
            "status.waitingOn says what holds them.";
    }
    Holds {
        Paused => Holder, "The object is paused, or something that it belongs to. The message names the source and the end. An AgentMachine that is paused requests no host.",
            "None while you want it so. To go on, remove what the message names.";
        PausedUntilInvalid => Hub, "Paused: a spec.pausedUntil is neither a boolean nor a time in RFC 3339. It pauses nothing.",
            "Correct the value.";
        Vetoed => Holder, "Annotations forbid that the VM is deleted, or switched on. The message lists them.",
            "Ask each holder to remove its annotation.";
        DryRun => PoolOwner, "spec.dryRun of the pool, or --dry-run: it is planned and not done.",
            "None while you want it so. See what the operator would do (docs/how-to/dry-run.md) explains how to go on.";
    }
    Operator {
        SessionActorRestarting | PlacementActorRestarting => Nobody, "A part of the operator restarts.",
            "None. If it stays, see the alert AgentForgeRestartStorm.";
        PlacementQueued => Nobody, "The search for host and datastore of a VM has not ended within five minutes. Other VMs of the vCenter come first, or it answers slowly.",
            "None. If it stays, look at the vCenter's load and at its recent tasks.";
        NamespaceTooLarge => Operator, "The namespace that the message names has more objects than the operator keeps in memory, so a part of it is unknown. Nothing that depends on it is made or ended.",
            "Remove what nobody needs there. The log names what is left out. Or raise --max-namespace-cache-mib or --max-namespace-objects, and the memory limit of the Pod.";
        EffectHeld => Nobody, "The Lease has too little time left for this call.",
            "None.";
        Stopping => Nobody, "The process stops.",
            "None.";
        ApiServerUnavailable | NotFound | Conflict => Nobody, "The API server's answer to a write.",
            "None. It is tried again.";
        Forbidden => Operator, "The operator has no right for a write.",
            "Apply config/rbac.";
        Invalid => Operator, "The API server refuses an object.",
            "CRDs of another version, or an admission webhook that the message names.";
        InternalError => Operator, "An unreadable answer of the API server, or a defect.",
            "Report it with the log.";
    }
}
