package rollout

// Reasons of conditions.
const (
	reasonAccepted     = "Accepted"
	reasonInvalid      = "InvalidPolicy"
	reasonExcluded     = "NamespaceExcluded"
	reasonResolved     = "Resolved"
	reasonNotFound     = "NotFound"
	reasonUnreadable   = "Unreadable" // What a policy refers to could not be looked for.
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
	reasonBounced = "NotInjected" // A pod was, or would be, created without what it should have.
	reasonQueued  = "Queued"
	reasonBlocked = "Blocked"
	// reasonInternal is that Refract panicked over what it was given.
	reasonInternal = "InternalError"
)

// Reasons for which a workload is blocked, in its message.
const (
	reasonPodRefused  = "PodRefused"
	reasonChanging    = "Changing"
	reasonWriteFailed = "WriteFailed"
)
