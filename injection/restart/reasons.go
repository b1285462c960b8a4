package restart

// Reasons of conditions.
const (
	reasonAccepted     = "Accepted"
	reasonInvalid      = "InvalidPolicy"
	reasonExcluded     = "NamespaceExcluded"
	reasonResolved     = "Resolved"
	reasonNotFound     = "NotFound"
	reasonUnreadable   = "Unreadable" // An object that a policy names, or an owner of pods, could not be read.
	reasonComplete     = "Complete"
	reasonDisabled     = "Disabled"
	reasonNotRequested = "NotRequested"
)

// Reasons of workloads in a status, and of conditions.
const (
	reasonManual  = "ManualRestartRequired"
	reasonOwner   = "WaitingForOwner"
	reasonReverts = "OwnerReverts"
	reasonNextRun = "NextRun"
	reasonBusy    = "RolloutUnderWay"
	reasonRolling = "Rolling"
	reasonHalted  = "RolloutHalted"
	reasonBudget  = "EvictionRefused"
	reasonBounced = "NotInjected" // An actual new pod, or one in a dry run, did not get the expected items.
	reasonQueued  = "Queued"
	reasonBlocked = "Blocked"
	// reasonInternal: Refract panicked.
	reasonInternal = "InternalError"
)

// The reasons for which a workload is blocked. They are part of its message.
const (
	reasonPodRefused  = "PodRefused"
	reasonChanging    = "Changing"
	reasonWriteFailed = "WriteFailed"
)
