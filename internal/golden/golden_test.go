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
			reason:  "An equal result changes nothing.",
			archive: inputs + "-- want/b --\n2\n", made: []txtar.File{{Name: "want/b", Data: []byte("2\n")}},
			want: inputs + "-- want/b --\n2\n",
		},
		"Other": {
			reason:  "A different result replaces the wanted file.",
			archive: inputs + "-- want/b --\n2\n", made: []txtar.File{{Name: "want/b", Data: []byte("3\n")}},
			want: inputs + "-- want/b --\n3\n",
		},
		"Less": {
			reason:  "Wanted files without a result are removed.",
			archive: inputs + "-- want --\n1\n-- want.txt --\n2\n-- want/b --\n3\n",
			want:    inputs,
		},
		"More": {
			reason:  "Additional results are added, even two of the same name.",
			archive: inputs, made: []txtar.File{{Name: "want/b", Data: []byte("2\n")}, {Name: "want/b", Data: []byte("3\n")}},
			want: inputs + "-- want/b --\n2\n-- want/b --\n3\n",
		},
		"Input": {
			reason:  "A result with the name of an input replaces the input.",
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
