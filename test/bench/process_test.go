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

// process is the result of a process that has ended.
type process struct {
	code           int
	stdout, stderr []byte
	took           time.Duration
	memory         float64 // The maximum resident memory, in MB; 0 if the system does not report it.
}

// build builds a program of this module, or of the module in a flag, and returns its path.
func build(b *testing.B, args ...string) string {
	b.Helper()
	program := filepath.Join(b.TempDir(), "program")
	if out, err := exec.Command("go", append([]string{"build", "-o", program}, args...)...).CombinedOutput(); err != nil {
		b.Fatalf("go build %v: %v\n%s", args, err, out)
	}
	return program
}

// run runs a program. Its stdout is a file, because reading from a pipe would need processor time, too.
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

// watchMemory observes the memory of a process until peak is called, which returns the maximum resident memory, in MB.
// The resource usage that Linux reports for an ended process would include its parent's memory.
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

// repeat runs a process n times.
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
	b.ReportMetric(0, "ns/op") // The metric ns/op would cover several runs, and the checks.
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
