package harness

import "refract.dev/internal/poll"

// Patience is the time limit of [poll].
const Patience = poll.Patience

// The functions of [poll], for tests with control planes.
var (
	Eventually   = poll.Eventually
	Await        = poll.Await
	Consistently = poll.Consistently
)
