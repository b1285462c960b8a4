package playground

import "errors"

// errLocked means that another process holds the lock.
var errLocked = errors.New("the lock is held by another process")
