# Reads the output of `go build -v`, one package per line, and prints the progress
# and the remaining minutes. `all` is the number of packages that are not in the
# cache. A line that is neither the name of a package nor a download is an error,
# and is printed. The last line is "exit" and the exit code, because a pipe hides
# the exit code of its first command.

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
