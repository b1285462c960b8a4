package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// process is what a program did that has ended.
type process struct {
	code           int
	stdout, stderr []byte
	took           time.Duration
	memory         float64 // The most that was resident, in MB; 0 where that is not known.
}

// build builds a program of this module, or of the one that a flag names, and
// returns its path.
func build(b *testing.B, args ...string) string {
	b.Helper()
	program := filepath.Join(b.TempDir(), "program")
	if out, err := exec.Command("go", append([]string{"build", "-o", program}, args...)...).CombinedOutput(); err != nil {
		b.Fatalf("go build %v: %v\n%s", args, err, out)
	}
	return program
}

// run runs a program, with a file as its stdout, as reading from a pipe would take
// part of the time of the processors.
func run(b *testing.B, program string, args ...string) *process {
	b.Helper()
	stdout := filepath.Join(b.TempDir(), "stdout")
	out, err := os.Create(stdout)
	if err != nil {
		b.Fatal(err)
	}
	defer out.Close()
	var stderr bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = out, &stderr
	began := time.Now()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	peak := watchMemory(cmd.Process.Pid)
	err = cmd.Wait()
	p := &process{took: time.Since(began), memory: peak(), stderr: stderr.Bytes()}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		b.Fatal(err)
	}
	p.code = cmd.ProcessState.ExitCode()
	if p.stdout, err = os.ReadFile(stdout); err != nil {
		b.Fatal(err)
	}
	return p
}

// watchMemory watches the memory of a process until the function that it returns
// is called, which returns the most that was resident, in MB. On Linux the usage
// that the process leaves behind does not say: it begins with that of its parent.
func watchMemory(pid int) (peak func() float64) {
	stop, result := make(chan struct{}), make(chan float64)
	go func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		most := 0.0
		for {
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if _, rest, ok := strings.Cut(string(status), "VmHWM:"); ok {
				kilobytes, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
				most = max(most, kilobytes*1024/1e6)
			}
			select {
			case <-tick.C:
			case <-stop:
				result <- most
				return
			}
		}
	}()
	return func() float64 { close(stop); return <-result }
}

// repeat runs a process so many times.
func repeat(n int, once func() *process) []*process {
	var runs []*process
	for range n {
		runs = append(runs, once())
	}
	return runs
}

// report reports the medians of the time and the memory.
func report(b *testing.B, prefix string, runs []*process) {
	b.Helper()
	b.ReportMetric(0, "ns/op") // It would hold several runs, and the checks.
	b.ReportMetric(median(runs, seconds), prefix+"s")
	b.ReportMetric(median(runs, megabytes), prefix+"MB")
}

func median(runs []*process, of func(*process) float64) float64 {
	values := make([]float64, len(runs))
	for i, r := range runs {
		values[i] = of(r)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func seconds(p *process) float64 { return p.took.Seconds() }

func megabytes(p *process) float64 { return p.memory }

func lastLine(text []byte) string {
	text = bytes.TrimRight(text, "\n")
	return string(text[bytes.LastIndexByte(text, '\n')+1:])
}
