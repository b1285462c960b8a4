package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version string

// versionInfo is the output of version.
type versionInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit"` // Ends in -dirty if files were changed.
	Go      string `json:"go"`
}

// versionOutputs are the formats of version.
var versionOutputs = formats[versionInfo]{
	{"text", func(s *streams, v versionInfo) error {
		_, err := fmt.Fprintf(s.out, "refract %s (commit %s, %s)\n", v.Version, v.Commit, v.Go)
		return err
	}},
	{"json", func(s *streams, v versionInfo) error { return json.NewEncoder(s.out).Encode(v) }},
}

func newVersionCommand(s *streams) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show the version of this program",
		Example: "  refract version -o json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			info, _ := debug.ReadBuildInfo()
			v := versionOf(version, info)
			write, err := versionOutputs.find(output)
			if err != nil {
				return err
			}
			return write(s, v)
		},
	}
	versionOutputs.addFlag(cmd, &output)
	return cmd
}

// versionOf combines the linked version with Go's build information, if it exists.
func versionOf(linked string, info *debug.BuildInfo) versionInfo {
	v := versionInfo{Version: linked, Commit: "unknown", Go: runtime.Version()}
	if info == nil {
		info = &debug.BuildInfo{}
	}
	if v.Version == "" {
		v.Version = info.Main.Version
	}
	if v.Version == "" {
		v.Version = "(devel)" // Go uses this name too.
	}
	dirty := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v.Commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if v.Commit != "unknown" {
		v.Commit += dirty
	}
	return v
}
