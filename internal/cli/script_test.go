package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"refract.dev/internal/golden"
)

func TestMain(m *testing.M) {
	run := func() {
		os.Exit(Main(Interruptible(context.Background()), os.Args, os.Stdin, os.Stdout, os.Stderr))
	}
	testscript.Main(m, map[string]func(){"refract": run, pluginName: run, completionName: run})
}

// TestScript runs the scripts in testdata/script. They use the commands of testscript and these:
//
//   - exits CODE COMMAND...: runs a command that must end with this exit code;
//   - configmap FILE BYTES: writes a ConfigMap with the given number of bytes of data;
//   - hub FILE: starts a fake hub with the objects of the file, and writes hub.kubeconfig. In the file, AGO(3h) stands
//     for a time;
//   - play CODE FILE COMMAND...: like exits, and meanwhile changes the hub as the file describes. A document
//     "when: TEXT" waits until the command has printed the text. A document "before: METHOD RESOURCE" waits for such a
//     request, which is answered after the changes. The documents behind it are the changes: objects to create or
//     replace, "gone: OBJECT" to remove an object, and "interrupt: true" to interrupt the command.
//
// $EXAMPLES is the folder of the examples. With -update, the actual output of the commands becomes the expected output.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *golden.Update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			examples, err := filepath.Abs(filepath.Join(root, "examples"))
			env.Setenv("EXAMPLES", examples)
			env.Values[hubOfScript{}] = new(*fakeHub)
			return err
		},
		Condition: func(name string) (bool, error) {
			if name == "root" { // The user root can read every file.
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("there is no condition %q", name)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"truncate":  truncate,
			"exits":     exits,
			"configmap": configMap,
			"hub":       startHub,
			"play":      play,
		},
	})
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		got = ended.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func configMap(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: configmap FILE BYTES")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: large\ndata:\n  x: " + strings.Repeat("x", n) + "\n"
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o644))
}

// truncate is the script command truncate. It removes the line feed at the end of a file.
func truncate(ts *testscript.TestScript, _ bool, args []string) {
	file := ts.MkAbs(args[0])
	ts.Check(os.WriteFile(file, []byte(strings.TrimSuffix(ts.ReadFile(file), "\n")), 0o600))
}
