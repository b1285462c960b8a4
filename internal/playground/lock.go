package playground

import "errors"

// errLocked says that somebody else has the lock.
var errLocked = errors.New("the lock is held by another process")
