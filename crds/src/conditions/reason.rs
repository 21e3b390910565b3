//! Reasons of conditions, of `waitingOn`, of failures and of a VM's phase.

use super::words::words;

words! {
    /// Why something is as it is, as one CamelCase word for programs.
    ///
    /// It is in conditions, in `status.waitingOn[]`, in `status.vm.reason` and in each failure.
    /// `docs/reference/reasons.md` has the meaning and the remedy of each. `Other` is also vCenter's own name of a fault.
    Reason {
        /// Ready of a pool: the last pass succeeded.
        Reconciled = "Reconciled",
        /// AgentMachineDemandFound: AgentMachines were read and counted.
        Observed = "Observed",
        /// InfraEnvAvailable: it offers a discovery ISO.
        Available = "Available",
        /// CapacitySatisfied: no AgentMachine waits for a host.
        Satisfied = "Satisfied",
        /// VsphereReady: no error is known.
        Ready = "Ready",
        /// ISOReady: the ISO is in place.
        IsoReady = "ISOReady",
        /// Ready of a VsphereAgent: its VM exists.
        VmCreated = "VMCreated",
        /// ConfigSynced: the VM has the hardware that it was made with, and its pool still wants that.
        Synced = "Synced",
        /// ConfigSynced: somebody has changed the hardware of the VM in vCenter. The message names each field.
        HardwareDrift = "HardwareDrift",
        /// ConfigSynced: the pool wants other hardware than the VM was made with. The message names each field.
        TemplateChanged = "TemplateChanged",
        /// ConfigSynced: it is not recorded with what hardware the VM was made.
        TemplateUnrecorded = "TemplateUnrecorded",
        /// CapacitySatisfied: this number of hosts is missing and being created.
        DemandDeficit = "DemandDeficit",
        /// The InfraEnv does not exist.
        InfraEnvNotFound = "InfraEnvNotFound",
        /// The InfraEnv has no ISO URL yet.
        IsoUrlPending = "ISOURLPending",
        /// `spec.clusterRef` of the InfraEnv is set. Its hosts are bound from the start, so no NodePool could have them.
        LateBindingUnavailable = "LateBindingUnavailable",
        /// The InfraEnv approves its Agents automatically, and some NodePool's selector requires no label. So nothing
        /// prevents that an Agent is chosen while its Machine is being deleted.
        AutoApproveDefeatsFence = "AutoApproveDefeatsFence",
        /// Condition `ImageCreated` of the InfraEnv is False.
        ImageNotCreated = "ImageNotCreated",
        /// The ISO has another version than `spec.osImageVersion` of the InfraEnv.
        IsoStale = "ISOStale",
        /// The ISO on the datastore belongs to another InfraEnv than the pool's present one. No new VM uses it.
        IsoSourceChanged = "ISOSourceChanged",
        /// More than one Agent matches one VM. None of them is approved.
        RivalAgents = "RivalAgents",
        /// An Agent matches a VM except for its MAC addresses, for example because the VM's network card was replaced.
        MacDiffers = "MacDiffers",
        /// An Agent matches a VM only in part. It is not approved. While it is bound, the VM is not deleted.
        AgentUnproven = "AgentUnproven",
        /// The ISO is being downloaded and uploaded.
        IsoUploading = "ISOUploading",
        /// An AgentMachine waits but has no conditions: provider and CRD have different generations.
        ConditionsMissing = "ConditionsMissing",
        /// The provider's finalizer is missing: the provider does not accept the AgentMachine's owner.
        ProviderNotAccepting = "ProviderNotAccepting",
        /// An error prevents the provider from looking for an Agent, so the operator sees no demand.
        AgentSearchFailed = "AgentSearchFailed",
        /// The AgentMachine's owner Machine does not exist yet.
        MachinePending = "MachinePending",
        /// Something changed recently. The operator waits a moment for other controllers before it acts.
        Debouncing = "Debouncing",
        /// The NodePool, the control plane or the InfraEnv is in a namespace that does not admit pools from the pool's
        /// namespace. The message names the namespace and the missing annotation.
        NamespaceNotAllowed = "NamespaceNotAllowed",
        /// The Agent of a VM of this pool serves an AgentMachine of another control plane. Its own AgentMachine gets
        /// another VM.
        AgentElsewhere = "AgentElsewhere",
        /// The VsphereAgent's AgentMachine belongs to a NodePool that its pool no longer serves.
        NodePoolMoved = "NodePoolMoved",
        /// A VsphereAgent of another pool is for this AgentMachine. This pool creates a VM when that VsphereAgent is gone.
        HostOfAnotherPool = "HostOfAnotherPool",
        /// Two pools claim the same AgentMachine. Neither acts.
        PoolConflict = "PoolConflict",
        /// No labels can match the AgentMachine's selector.
        SelectorUnsatisfiable = "SelectorUnsatisfiable",
        /// A VM with that name exists and is not ours.
        NameConflict = "NameConflict",
        /// The VsphereAgent's pool does not exist (any more).
        PoolNotFound = "PoolNotFound",
        /// vCenter shows no configuration of a VM that may be ours: its datastore or host is unreachable.
        VmInaccessible = "VMInaccessible",
        /// The VM's folder was deleted in vCenter.
        VmFolderDeleted = "VMFolderDeleted",
        /// The VM is suspended: its host has served, or vCenter does not power it off.
        VmSuspended = "VMSuspended",
        /// More than one VM has our mark, and none is the recorded one.
        AmbiguousVm = "AmbiguousVM",
        /// A field of the spec cannot be used. The message names it.
        InvalidSpec = "InvalidSpec",
        /// A vSphere object in the spec does not exist or is not visible to this user. The message names field and value.
        VsphereObjectNotFound = "VsphereObjectNotFound",
        /// The credentials Secret does not exist or does not have a required key. The message names it.
        SecretNotFound = "SecretNotFound",
        /// The credentials Secret is in a namespace that this pool may not use.
        SecretNamespaceRefused = "SecretNamespaceRefused",
        /// vCenter refused user or password, or a value in the Secret cannot be used. The message names the key.
        InvalidCredentials = "InvalidCredentials",
        /// The user does not have a required privilege. The message names privilege and object. The word is vCenter's own.
        NoPermission = "NoPermission",
        /// vCenter does not answer. Also each other failure to connect to a host that `--allowed-vcenters` does not name.
        VcenterUnreachable = "VCenterUnreachable",
        /// vCenter's certificate is not trusted, and nothing was sent. The message says how to trust it.
        UntrustedCertificate = "UntrustedCertificate",
        /// Two logins of that user were refused recently, so none is tried for now. The message says when the next one is.
        LoginLimited = "LoginLimited",
        /// The Secret names a server to which the operator does not connect. The message says why.
        VcenterNotAllowed = "VCenterNotAllowed",
        /// vCenter has too little room or capacity.
        InsufficientResources = "InsufficientResources",
        /// A datastore is full.
        NoDiskSpace = "NoDiskSpace",
        /// The highest number of VMs in a row was replaced. A person decides.
        ReplacementsExhausted = "ReplacementsExhausted",
        /// The CD-ROM drive of an installed host could not be emptied.
        EjectFailed = "EjectFailed",
        /// ISOEjected: an ejection that the predecessor began is finished.
        Ejected = "Ejected",
        /// A task on the VM does not end. It is our task, or another one that blocks ours. The message says where to look.
        VmBusy = "VMBusy",
        /// A VM was given up recently. The next one waits a while.
        ReplacementResting = "ReplacementResting",
        /// A tag could not be attached. The VM stays.
        TaggingFailed = "TaggingFailed",
        /// The assisted service does not hear from the guest any more, and its Agent serves no Machine.
        AgentDisconnected = "AgentDisconnected",
        /// Validations of an Agent without a Machine fail, so that it cannot be claimed. The message names them.
        AgentValidationsFailing = "AgentValidationsFailing",
        /// A reserved Agent is in a state that does not end by itself.
        AgentStuck = "AgentStuck",
        /// The Agent shows a state that the operator does not know, or none. Its VM is not touched.
        AgentStateUnknown = "AgentStateUnknown",
        /// The VM's Agent was registered and is gone.
        AgentMissing = "AgentMissing",
        /// A person requested another VM, but the Agent of this one serves a Machine, or did.
        ReplaceRefused = "ReplaceRefused",
        /// The Agent is bound to a Machine that still exists.
        AgentBound = "AgentBound",
        /// VsphereAgents still exist.
        ChildrenRemain = "ChildrenRemain",
        /// It could not be proven that the Machine is gone.
        MachineStateUnknown = "MachineStateUnknown",
        /// The Machine is gone, and its Agent was not seen unbound. The VM may be a node of another hub.
        MachineVanishedPaused = "MachineVanishedPaused",
        /// `cleanupPolicy: Retain` or `skip-delete` keeps the VM, or its data holds it.
        Retained = "Retained",
        /// There is no proof that the VM is ours. It is not changed.
        OwnershipUnproven = "OwnershipUnproven",
        /// The recorded identity of the VM cannot be read. Nothing is done, so that no second VM is created.
        RecordUnreadable = "RecordUnreadable",
        /// `approve: false`: a person has to approve the Agent.
        ApprovalRequired = "ApprovalRequired",
        /// The cluster's identity differs from the recorded one.
        ClusterIdChanged = "ClusterIDChanged",
        /// vCenter's answer cannot be read, or has no end.
        VcenterReplyUnusable = "VCenterReplyUnusable",
        /// A broken invariant, or an answer of the API server that cannot be read.
        InternalError = "InternalError",
        /// The AgentMachine is being deleted.
        Deleting = "Deleting",
        /// A person has paused the object, or something that it belongs to. The message names where, and the end.
        Paused = "Paused",
        /// Paused: a `spec.pausedUntil` is neither a boolean nor a time. It pauses nothing.
        PausedUntilInvalid = "PausedUntilInvalid",
        /// Annotations forbid that the VM is removed, or switched on. The message lists them.
        Vetoed = "Vetoed",
        /// A limit of the number of VMs is reached. The message names the limit, the present number, and the place in line.
        CreateCapReached = "CreateCapReached",
        /// A dry run: it is planned and not done. The message names who asked for the dry run.
        DryRun = "DryRun",
        /// The AgentMachine does not report that it waits for an Agent.
        NotWaiting = "NotWaiting",
        /// A free Agent fits the AgentMachine. The provider gets time to bind it.
        FreeAgentFits = "FreeAgentFits",
        /// The VM's AgentMachine is gone. The VM is kept a moment for the next one.
        Offered = "Offered",
        /// No AgentMachine needs this VM, but another AgentMachine of the pool asks for a host.
        SurplusKept = "SurplusKept",
        /// The VsphereAgent names no AgentMachine.
        NoAgentMachine = "NoAgentMachine",
        /// The VsphereAgent or its pool is being deleted, and its Machine still exists.
        MachineRemains = "MachineRemains",
        /// The VM says in vCenter that it may serve an AgentMachine that this hub does not know of: the record is older.
        RecordOutdated = "RecordOutdated",
        /// The API server's objects may come from two histories: it was restored, or a watch lost its place.
        HistoryUnclear = "HistoryUnclear",
        /// A namespace has more objects than the operator keeps in memory: a part of it is unknown. The message names it.
        NamespaceTooLarge = "NamespaceTooLarge",
        /// The Agent's deletion hook waits for the guest, and the VM runs.
        WaitingForGuest = "WaitingForGuest",
        /// The VM is made ready for another life: its guest is to boot the discovery ISO again.
        Recycling = "Recycling",
        /// Another pool of the group takes the host over: nothing is done to it here.
        HostLent = "HostLent",
        /// The host of another pool of the group is taken over: its VM gets the mark of this VsphereAgent.
        TakingHost = "TakingHost",
        /// The Agent changed between plan and release: it could be claimed again.
        AgentNotFenced = "AgentNotFenced",
        /// The Agent changed between plan and ejection: its host is not installed.
        AgentNotInstalled = "AgentNotInstalled",
        /// The credentials Secret does not have the pool's finalizer, so no VM is created with it.
        CredentialsNotHeld = "CredentialsNotHeld",
        /// `status.vm` is empty, but the VM of a later attempt exists.
        RecordLost = "RecordLost",
        /// The VM waits for the ISO.
        IsoNotReady = "IsoNotReady",
        /// ISOReady: vCenter does not answer, so the datastore is out of reach.
        WaitingForVsphere = "WaitingForVsphere",
        /// The VM was deleted in vCenter.
        VmMissing = "VMMissing",
        /// The VM of a host that serves or served was powered off.
        VmPoweredOff = "VMPoweredOff",
        /// `spec.power: EnsureOn` has switched the VM on three times within an hour, and somebody has switched it off again.
        PowerOnLimited = "PowerOnLimited",
        /// The guest booted the discovery ISO instead of its disk: the VM was reset, and may still come up from its disk.
        BootOrderRepaired = "BootOrderRepaired",
        /// The guest booted the discovery ISO instead of its disk, and nothing shows that the reset helped. Or the VM has no disk.
        BootOrderWrong = "BootOrderWrong",
        /// The guest restarted in the middle of the installation, which failed by that.
        HostRestarted = "HostRestarted",
        /// The VM is made, and is switched on at `spec.powerOnAfter` of the pool.
        PowerOnScheduled = "PowerOnScheduled",
        /// vCenter shows no MAC address of the running VM yet.
        MacPending = "MACPending",
        /// The account does not see the VM's folder, so nothing is known about the VM.
        FolderNotVisible = "FolderNotVisible",
        /// The Secret leads to another vCenter than the one that has the VM.
        ServerMismatch = "ServerMismatch",
        /// The path on the datastore cannot be used.
        InvalidPath = "InvalidPath",
        /// The URL in the InfraEnv's status is no http(s) URL.
        InvalidIsoUrl = "InvalidISOURL",
        /// `spec.iso.caBundleRef` names a ConfigMap or key that does not exist.
        IsoCaBundleMissing = "ISOCABundleMissing",
        /// The CA bundle for the image server has no certificate.
        InvalidIsoCaBundle = "InvalidISOCABundle",
        /// The ISO URL leads to an address that an image server must not have.
        IsoAddressNotAllowed = "ISOAddressNotAllowed",
        /// The image server cannot be reached, refuses, or breaks the connection.
        IsoDownloadFailed = "ISODownloadFailed",
        /// The image server declares no length.
        IsoLengthMissing = "ISOLengthMissing",
        /// The image has another length than declared.
        IsoLengthMismatch = "ISOLengthMismatch",
        /// The image is larger than the limit.
        IsoTooLarge = "ISOTooLarge",
        /// The file is not an ISO 9660 image.
        IsoWrongMagic = "ISOWrongMagic",
        /// The download is too slow, or takes too long.
        IsoStalled = "ISOStalled",
        /// The image server sends nothing.
        IsoDownloadStalled = "ISODownloadStalled",
        /// vCenter takes no bytes, or does not end the upload.
        IsoUploadStalled = "ISOUploadStalled",
        /// The file on the datastore is missing or too short after the upload.
        IsoUploadIncomplete = "ISOUploadIncomplete",
        /// A file with that digest as name has another size. It is never overwritten.
        IsoFileConflict = "ISOFileConflict",
        /// The transfer of an ISO waits for its turn.
        IsoQueued = "ISOQueued",
        /// The datastore is being searched for the ISO.
        IsoChecking = "ISOChecking",
        /// The ISO is being downloaded.
        IsoFetching = "ISOFetching",
        /// The ISO gets its final name on the datastore.
        IsoPublishing = "ISOPublishing",
        /// The actor of that datastore is not there at the moment.
        IsoCacheRestarting = "ISOCacheRestarting",
        /// The actor of that datastore did not answer.
        IsoCacheUnavailable = "ISOCacheUnavailable",
        /// The actor of the vCenter sessions is not there at the moment.
        SessionActorRestarting = "SessionActorRestarting",
        /// The actor that chooses hosts and datastores is not there at the moment.
        PlacementActorRestarting = "PlacementActorRestarting",
        /// The search for host and datastore waits for its turn, or for vCenter, for longer than five minutes.
        PlacementQueued = "PlacementQueued",
        /// The effect gate refused the call. Nothing was sent.
        EffectHeld = "EffectHeld",
        /// The process stops.
        Stopping = "Stopping",
        /// A request was sent to vCenter and not answered.
        VcenterNoAnswer = "VCenterNoAnswer",
        /// A gateway answers for vCenter.
        VcenterUnavailable = "VCenterUnavailable",
        /// vCenter does not accept its own session.
        NotAuthenticated = "NotAuthenticated",
        /// vCenter: the reference leads to nothing.
        ManagedObjectNotFound = "ManagedObjectNotFound",
        /// vCenter: the name is taken.
        DuplicateName = "DuplicateName",
        /// vCenter: there is no such file.
        FileNotFound = "FileNotFound",
        /// vCenter: the file is in use.
        FileLocked = "FileLocked",
        /// vCenter: the VM is in another power state than the call needs.
        InvalidPowerState = "InvalidPowerState",
        /// vCenter: another task is working on the object.
        TaskInProgress = "TaskInProgress",
        /// vCenter: somebody else changed the object first.
        ConcurrentAccess = "ConcurrentAccess",
        /// vCenter: a user cancelled the task.
        RequestCanceled = "RequestCanceled",
        /// vCenter does not accept a value. The message names the field.
        InvalidArgument = "InvalidArgument",
        /// The object or the file exists already.
        AlreadyExists = "AlreadyExists",
        /// API server: the object does not exist.
        NotFound = "NotFound",
        /// API server: another writer was first.
        Conflict = "Conflict",
        /// API server: the operator may not do that.
        Forbidden = "Forbidden",
        /// API server: the object is refused.
        Invalid = "Invalid",
        /// The API server does not answer.
        ApiServerUnavailable = "APIServerUnavailable",

        /// The VM was requested.
        CreateRequested = "CreateRequested",
        /// The VM is not complete yet.
        VmCreatePending = "VMCreatePending",
        /// The VM runs. Its Agent has not registered.
        AgentNotDiscovered = "AgentNotDiscovered",
        /// The Agent did not register in time.
        AgentDiscoveryExpired = "AgentDiscoveryExpired",
        /// The Agent has registered.
        AgentAvailable = "AgentAvailable",
        /// The Agent has labels, role, hostname and approval.
        AgentPrepared = "AgentPrepared",
        /// The Agent's Machine has freed it.
        AgentReleased = "AgentReleased",
        /// The Machine has a deletionTimestamp.
        MachineDeleting = "MachineDeleting",
        /// The Machine is gone.
        MachineDeleted = "MachineDeleted",
        /// The VM existed before, and no person has requested that the operator takes it over. It is not changed.
        VmAdopted = "VMAdopted",
    }
}

impl Default for Reason {
    fn default() -> Self {
        Self::Other(String::new())
    }
}
