# Reads what `go build -v` prints, a package a line, and says how far it has come
# and how many minutes remain at that speed. `all` is how many packages are not in
# the cache. What is neither the name of a package nor a download is an error, and
# shown. The last line is "exit" and the exit code, since a pipe hides that of what
# is before it.

BEGIN { began = now(); said = began }

/^go: downloading / { next }

/^exit [0-9]+$/ { code = $2; next }

/^[^ :#]+$/ {
	n++
	t = now()
	if (t - said >= 20 && n >= 20) {
		printf "  %d of %d packages compiled, %d min to go\n", n, all, (all - n) * (t - began) / n / 60 + 1
		fflush()
		said = t
	}
	next
}

{ print; fflush() }

END { exit code }

# now returns the time in seconds; not every awk has systime.
function now(   t) {
	"date +%s" | getline t
	close("date +%s")
	return t
}
