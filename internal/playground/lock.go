package playground

import "errors"

// errLocked is returned if another process holds the lock.
var errLocked = errors.New("the lock is held by another process")
