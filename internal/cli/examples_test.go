package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"refract.dev/internal/golden"
)

// root is the root of the repository.
const root = "../.."

// TestExamples runs the commands in the comments of examples/testdata/*.txtar, in the root of the repository. A command
// is a line that begins with "$ refract". The files of an archive are the expected output.
func TestExamples(t *testing.T) {
	t.Chdir(root)
	golden.Run(t, "examples/testdata/*.txtar", func(t *testing.T, archive *txtar.Archive) (got []txtar.File) {
		for line := range strings.Lines(string(archive.Comment)) {
			command, ok := strings.CutPrefix(line, "$ ")
			if !ok || !strings.HasPrefix(command, "refract ") {
				continue
			}
			var stdout, stderr bytes.Buffer
			if code := Main(t.Context(), strings.Fields(command), strings.NewReader(""), &stdout, &stderr); code != 0 {
				t.Errorf("%s: exit code %d\n%s", line, code, &stderr)
			}
			got = append(got, txtar.File{Name: "want/stdout", Data: stdout.Bytes()}, txtar.File{Name: "want/stderr", Data: stderr.Bytes()})
		}
		return got
	})
}

// documented are the documents whose commands are tested, and the folders in which the commands run.
var documented = []struct{ file, dir string }{
	{"README.md", "."},
	{"examples/README.md", "."},
	{"docs/guide/change-a-policy-safely.md", "examples/override"},
	{"docs/guide/what-travels-and-what-stays.md", "examples/exported"},
	{"docs/guide/test-policies.md", "."},
	{"docs/guide/inject-services.md", "."},
	{"docs/guide/add-a-version.md", "examples/evolution"},
	{"docs/guide/convert-without-code.md", "examples/conversion"},
	{"docs/guide/write-a-conversion-policy.md", "examples/conversion"},
	{"examples/evolution/README.md", "examples/evolution"},
	{"examples/injection/README.md", "."},
}

// TestDocuments runs the commands in documents. In a code block of the type console, a line that begins with "$
// refract" or "$ bin/refract" is a command, and the lines after it are its output. A line "..." stands for omitted
// lines. A command whose line ends with a backslash continues in the next line.
func TestDocuments(t *testing.T) {
	for _, d := range documented {
		t.Run(d.file, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(root, d.file))
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(filepath.Join(root, d.dir))
			commands := 0
			for _, block := range strings.Split(string(text), "```console\n")[1:] {
				block, _, _ = strings.Cut(block, "```")
				block = strings.ReplaceAll(block, "\\\n", "")
				for _, step := range strings.Split("\n"+block, "\n$ ")[1:] {
					command, want, _ := strings.Cut(step, "\n")
					commands++
					checkPrinted(t, command, want)
				}
			}
			if commands == 0 {
				t.Error("the document has no commands")
			}
		})
	}
}

func checkPrinted(t *testing.T, command, want string) {
	t.Helper()
	args := strings.Fields(command)
	if args[0] != "refract" && args[0] != "bin/refract" {
		t.Errorf("%s: not a command of refract", command)
		return
	}
	var printed bytes.Buffer
	Main(t.Context(), args, strings.NewReader(""), &printed, &printed)
	if !matches(lines(want), lines(printed.String())) {
		t.Errorf("%s\nprints:\n%s\nand not:\n%s", command, &printed, want)
	}
}

func lines(text string) []string { return strings.Split(strings.TrimSuffix(text, "\n"), "\n") }

// matches reports whether text matches the pattern. A line "..." in the pattern matches any number of lines.
func matches(pattern, text []string) bool {
	switch {
	case len(pattern) == 0:
		return len(text) == 0
	case pattern[0] == "...":
		for i := range len(text) + 1 {
			if matches(pattern[1:], text[i:]) {
				return true
			}
		}
		return false
	default:
		return len(text) > 0 && pattern[0] == text[0] && matches(pattern[1:], text[1:])
	}
}
