package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// controllers is `refract run` as a separate process.
type controllers struct {
	cmd *exec.Cmd
	log string
}

// startControllers starts the controllers with these further arguments, and returns when they are ready. It also
// returns the time that this took.
func startControllers(b *testing.B, program, kubeconfig string, args ...string) (*controllers, time.Duration) {
	b.Helper()
	log := filepath.Join(b.TempDir(), "run.log")
	file, err := os.Create(log)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	c := &controllers{cmd: exec.Command(program, append([]string{"run", "--kubeconfig", kubeconfig}, args...)...), log: log}
	c.cmd.Stderr = file
	began := time.Now()
	if err := c.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	await(b, func() bool {
		text, _ := os.ReadFile(log)
		return strings.Contains(string(text), "at work")
	})
	return c, time.Since(began)
}

// yield lowers the priority of the controllers. In a real fleet, hub and members have their own processors, so they go
// first here.
func (c *controllers) yield(b *testing.B) {
	b.Helper()
	const nice = 15
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", c.cmd.Process.Pid)) // New threads inherit the priority of the thread that starts them.
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err == nil {
			err = syscall.Setpriority(syscall.PRIO_PROCESS, id, nice)
		}
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			b.Fatal(err)
		}
	}
}

// kill ends the controllers like a crash, and waits until they have ended.
func (c *controllers) kill() {
	_ = c.cmd.Process.Signal(syscall.SIGKILL)
	_ = c.cmd.Wait() // The signal ends the process, so an error is expected.
}

// resident returns the current and the maximum resident memory, in MB; 0 if the system does not report it.
func (c *controllers) resident() (now, most float64) {
	return c.status("VmRSS:"), c.status("VmHWM:")
}

func (c *controllers) status(field string) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	_, rest, ok := strings.Cut(string(text), field)
	if !ok {
		return 0
	}
	kilobytes, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	return kilobytes * 1024 / 1e6
}

// cpu returns the used processor time, in seconds; 0 if the system does not report it.
func (c *controllers) cpu() float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	_, rest, ok := strings.Cut(string(text), ") ")
	if !ok {
		return 0
	}
	const user, system, ticks = 11, 12, 100 // Indexes of the fields after the name; Linux counts hundredths of a second.
	all := strings.Fields(rest)
	u, _ := strconv.ParseFloat(all[user], 64)
	s, _ := strconv.ParseFloat(all[system], 64)
	return (u + s) / ticks
}

// await waits until the condition holds. It polls more often than tests do, because the time is measured.
func await(b *testing.B, holds func() bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.Fatalf("not within %s", limit)
		}
	}
}

// meter counts requests with the metrics of an API server.
type meter struct{ client *rest.RESTClient }

func newMeter(b *testing.B, kubeconfig string) meter {
	b.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		b.Fatal(err)
	}
	cfg.QPS = -1
	client, err := rest.UnversionedRESTClientFor(withCodec(cfg))
	if err != nil {
		b.Fatal(err)
	}
	return meter{client}
}

// requests returns the number of requests whose labels the function selects.
func (m meter) requests(b *testing.B, chosen func(labels map[string]string) bool) float64 {
	b.Helper()
	text, err := m.client.Get().AbsPath("/metrics").Do(b.Context()).Raw()
	if err != nil {
		b.Fatal(err)
	}
	sum := 0.0
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), "apiserver_request_total{")
		if !ok {
			continue
		}
		set, value, _ := strings.Cut(rest, "} ")
		labels := map[string]string{}
		for one := range strings.SplitSeq(set, ",") {
			key, quoted, _ := strings.Cut(one, "=")
			labels[key] = strings.Trim(quoted, `"`)
		}
		if chosen(labels) {
			n, _ := strconv.ParseFloat(value, 64)
			sum += n
		}
	}
	return sum
}

// writes selects the write requests for one resource, or for all if the name is empty.
func writes(resource string) func(map[string]string) bool {
	return func(l map[string]string) bool {
		switch l["verb"] {
		case "APPLY", "PATCH", "POST", "PUT", "DELETE":
			return resource == "" || l["resource"] == resource
		default:
			return false
		}
	}
}
