package golden

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

func TestMerge(t *testing.T) {
	const inputs = "What it shows.\n-- a.yaml --\na: 1\n-- session --\n> 1\n"
	cases := map[string]struct {
		reason  string
		archive string
		made    []txtar.File
		want    string
	}{
		"Same": {
			reason:  "What is wanted is made.",
			archive: inputs + "-- want/b --\n2\n", made: []txtar.File{{Name: "want/b", Data: []byte("2\n")}},
			want: inputs + "-- want/b --\n2\n",
		},
		"Other": {
			reason:  "Something else is made.",
			archive: inputs + "-- want/b --\n2\n", made: []txtar.File{{Name: "want/b", Data: []byte("3\n")}},
			want: inputs + "-- want/b --\n3\n",
		},
		"Less": {
			reason:  "What is wanted is not made.",
			archive: inputs + "-- want --\n1\n-- want.txt --\n2\n-- want/b --\n3\n",
			want:    inputs,
		},
		"More": {
			reason:  "More is made than is wanted, and a file of a name twice.",
			archive: inputs, made: []txtar.File{{Name: "want/b", Data: []byte("2\n")}, {Name: "want/b", Data: []byte("3\n")}},
			want: inputs + "-- want/b --\n2\n-- want/b --\n3\n",
		},
		"Input": {
			reason:  "A session has what is asked and what is answered.",
			archive: inputs, made: []txtar.File{{Name: "session", Data: []byte("> 1\n= 1\n")}},
			want: "What it shows.\n-- a.yaml --\na: 1\n-- session --\n> 1\n= 1\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			archive := txtar.Parse([]byte(tc.archive))
			if diff := cmp.Diff(tc.want, string(merge(archive, tc.made))); diff != "" {
				t.Errorf("%s\nmerge(): -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.archive, string(txtar.Format(archive))); diff != "" {
				t.Errorf("%s\nmerge() changed the archive: -before, +after:\n%s", tc.reason, diff)
			}
		})
	}
}
