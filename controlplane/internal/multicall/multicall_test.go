package multicall

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	components := Components{
		"etcd":    func() int { return 1 },
		"kubectl": func() int { return 2 },
	}

	cases := map[string]struct {
		reason string
		argv   []string
		code   int // The result of the chosen component.
		args   []string
		usage  *UsageError
	}{
		"ByLink": {
			reason: "The name of a link selects the component, in any folder.",
			argv:   []string{"/some/where/etcd", "--version"},
			code:   1,
			args:   []string{"/some/where/etcd", "--version"},
		},
		"ByExecutableLink": {
			reason: "A suffix such as .exe is ignored.",
			argv:   []string{"kubectl.exe"},
			code:   2,
			args:   []string{"kubectl.exe"},
		},
		"ByArgument": {
			reason: "Under its own name, the binary takes the component from its first argument, which becomes the name of the component.",
			argv:   []string{"bin/controlplane", "kubectl", "get", "etcd"},
			code:   2,
			args:   []string{"kubectl", "get", "etcd"},
		},
		"LinkBeatsArgument": {
			reason: "The first argument of a component is its own, even if it names another component.",
			argv:   []string{"kubectl", "etcd"},
			code:   2,
			args:   []string{"kubectl", "etcd"},
		},
		"UnknownLink": {
			reason: "An unknown name starts no component.",
			argv:   []string{"kubelet"},
			usage:  &UsageError{Name: "kubelet", Known: []string{"etcd", "kubectl"}},
		},
		"UnknownArgument": {
			reason: "A flag does not name a component.",
			argv:   []string{"controlplane", "--help"},
			usage:  &UsageError{Name: "--help", Known: []string{"etcd", "kubectl"}},
		},
		"NoArgument": {
			reason: "The binary alone does not select a component.",
			argv:   []string{"controlplane"},
			usage:  &UsageError{Known: []string{"etcd", "kubectl"}},
		},
		"NoName": {
			reason: "A process may be started without any arguments.",
			usage:  &UsageError{Known: []string{"etcd", "kubectl"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			run, args, err := components.Choose(tc.argv)
			if tc.usage != nil {
				var usage *UsageError
				if !errors.As(err, &usage) || usage.Name != tc.usage.Name || !slices.Equal(usage.Known, tc.usage.Known) {
					t.Fatalf("%s\nChoose(%q): want %v, got %v", tc.reason, tc.argv, tc.usage, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s\nChoose(%q): %v", tc.reason, tc.argv, err)
			}
			if code := run(); code != tc.code {
				t.Errorf("%s\nChoose(%q): want the component that returns %d, got %d", tc.reason, tc.argv, tc.code, code)
			}
			if !slices.Equal(args, tc.args) {
				t.Errorf("%s\nChoose(%q): want the arguments %q, got %q", tc.reason, tc.argv, tc.args, args)
			}
		})
	}
}

func TestUsageErrorNamesWhatIsThere(t *testing.T) {
	got := (&UsageError{Name: "kubelet", Known: []string{"etcd", "kubectl"}}).Error()
	for _, want := range []string{`"kubelet"`, "Usage: controlplane COMPONENT", "etcd, kubectl"} {
		if !strings.Contains(got, want) {
			t.Errorf("a user who mistyped a name needs to see what exists: want %q in:\n%s", want, got)
		}
	}
}
