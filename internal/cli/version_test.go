package cli

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVersionOf(t *testing.T) {
	built := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	cases := map[string]struct {
		reason string
		linked string
		info   *debug.BuildInfo
		want   versionInfo
	}{
		"Linked":    {reason: "The version from the linker has precedence.", linked: "v1.2.3", info: built("v0.0.0"), want: versionInfo{Version: "v1.2.3", Commit: "unknown"}},
		"Installed": {reason: "go install records the version of the module.", info: built("v1.2.3"), want: versionInfo{Version: "v1.2.3", Commit: "unknown"}},
		"Built": {
			reason: "go build in a checkout records the commit.",
			info:   built("(devel)", debug.BuildSetting{Key: "vcs.revision", Value: "abc"}, debug.BuildSetting{Key: "vcs.modified", Value: "false"}),
			want:   versionInfo{Version: "(devel)", Commit: "abc"},
		},
		"Dirty": {
			reason: "Uncommitted changes are reported, whatever the order of the settings.",
			info:   built("(devel)", debug.BuildSetting{Key: "vcs.modified", Value: "true"}, debug.BuildSetting{Key: "vcs.revision", Value: "abc"}),
			want:   versionInfo{Version: "(devel)", Commit: "abc-dirty"},
		},
		"Nothing": {reason: "A build may have no information.", want: versionInfo{Version: "(devel)", Commit: "unknown"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.want.Go = runtime.Version()
			if diff := cmp.Diff(tc.want, versionOf(tc.linked, tc.info)); diff != "" {
				t.Errorf("%s\nversionOf(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
