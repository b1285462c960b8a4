package playground

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// TestPlayground runs several playgrounds with real control planes, one after the other in one folder.
func TestPlayground(t *testing.T) {
	t.Parallel()
	bin, err := Assets("../../bin/refract")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "with spaces, and a comma", strings.Repeat("long-", 20))

	t.Run("KilledSupervisorLeavesNoProcess", func(t *testing.T) {
		s := supervise(t, dir, bin)
		if len(processesOf(t, dir)) == 0 {
			t.Fatal("There is nothing to be left over.")
		}
		if _, err := Attach(t.Context(), dir); err != nil {
			t.Errorf("Others may look at what a supervisor runs.\nAttach(): %v", err)
		}
		if err := s.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = s.Wait()
		wantNoProcess(t, dir)
		if state, err := Find(t.Context(), dir); err != nil || state != nil {
			t.Errorf("A playground without a supervisor is not running: got %v, %v", state, err)
		}
		if _, err := Attach(t.Context(), dir); !errors.Is(err, ErrNotRunning) {
			t.Errorf("Of what its files say nothing is there any more.\nAttach(): want %v, got %v", ErrNotRunning, err)
		}
	})

	t.Run("Works", func(t *testing.T) {
		var progress []string
		p, err := Start(t.Context(), Options{Dir: dir, Assets: bin, Members: 1, Progress: func(msg string) {
			progress = append(progress, msg)
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Stop() })

		wantOneIn(t, p, dir, bin)
		wantSameView(t, p, dir)
		wantDeploymentReady(t, client(t, p.Members()[0]))
		wantNoController(t, client(t, p.Hub()))
		if !slices.Contains(progress, "member-1: the API server is ready") {
			t.Errorf("The user wants to see that something happens: got %q", progress)
		}
		if err := p.Stop(); err != nil {
			t.Errorf("Stop(): %v", err)
		}
		if err := p.Wait(); err != nil {
			t.Errorf("A playground that was told to stop has not failed.\nWait(): %v", err)
		}
		if got := processesOf(t, dir); got != nil {
			t.Errorf("Stop() must return when all processes have ended: left are %v", got)
		}
		if diff := cmp.Diff([]string{"gone"}, list(t, dir)); diff != "" {
			t.Errorf("The folder was made for a playground, and must go with it: -want, +got:\n%s", diff)
		}
	})

	t.Run("LossIsReported", func(t *testing.T) {
		p, err := Start(t.Context(), Options{Dir: dir, Assets: bin, Members: 1, Bare: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Stop() })
		kill(t, filepath.Join(dir, "member-1"), "etcd")

		var lost *ComponentError
		if err := p.Wait(); !errors.As(err, &lost) {
			t.Fatalf("Wait(): want a ComponentError, got %v", err)
		}
		if lost.Cluster != "member-1" || lost.Component != "etcd" || !strings.Contains(lost.Error(), lost.Log) {
			t.Errorf("The user must learn what has ended, and where to look: got %v", lost)
		}
		if err := p.Stop(); err != nil {
			t.Errorf("Stop(): %v", err)
		}
		wantNoProcess(t, dir)
		left := list(t, dir)
		if rel, _ := filepath.Rel(dir, lost.Log); !slices.Contains(left, rel) || slices.Contains(left, stateFile) {
			t.Errorf("Of a playground that has failed the logs are left, and nothing else: got %q", left)
		}
	})

	t.Run("StartCanBeCalledOff", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := Start(ctx, Options{Dir: dir, Assets: bin, Members: 1, Progress: func(string) { cancel() }})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Start(): want %v, got %v", context.Canceled, err)
		}
		wantNoProcess(t, dir)
	})

	t.Run("Down", func(t *testing.T) {
		s := supervise(t, dir, bin)
		if err := Down(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		if err := s.Wait(); err != nil {
			t.Errorf("A supervisor that is told to stop ends in order: %v", err)
		}
		wantNoProcess(t, dir)
	})
}

// supervise starts a process that starts a playground and becomes its supervisor. It returns when the playground is
// ready.
func supervise(t *testing.T, dir, bin string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(filepath.Join(linkStubs(t), "supervisor"), dir, bin)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	err := await(t.Context(), func(context.Context) error {
		s, err := Find(t.Context(), dir)
		if err == nil && (s == nil || !s.Ready || s.PID != cmd.Process.Pid) {
			err = errors.New("it is not ready")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return cmd
}

// wantOneIn checks that other processes can find the running playground, and cannot start a second one in its folder.
func wantOneIn(t *testing.T, p *Playground, dir, bin string) {
	t.Helper()
	want := &State{PID: os.Getpid(), Ready: true, Hub: p.Hub(), Members: p.Members(), Dir: dir, Created: true}
	found, err := Find(t.Context(), dir)
	if err != nil || found == nil {
		t.Fatalf("Find(): got %v, %v", found, err)
	}
	_, err = Start(t.Context(), Options{Dir: dir, Assets: bin})
	var running *RunningError
	if !errors.As(err, &running) {
		t.Fatalf("Two playgrounds in one folder would destroy each other.\nStart(): want a RunningError, got %v", err)
	}
	want.Started = found.Started
	for _, got := range []*State{found, &running.State} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Others must learn what is running: -want, +got:\n%s", diff)
		}
	}
}

// wantDeploymentReady checks that a cluster runs a Deployment.
func wantDeploymentReady(t *testing.T, c *kubernetes.Clientset) {
	t.Helper()
	if _, err := c.AppsV1().Deployments("default").Create(t.Context(), deployment(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := await(ctx, func(ctx context.Context) error {
		d, err := c.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas != 3 {
			err = errors.New("it is not ready")
		}
		return err
	})
	if err != nil {
		t.Errorf("A member must run a Deployment: %v", err)
	}
}

// wantNoController checks that a cluster stores objects but runs no workloads. No test can prove that nothing will
// happen later. This test assumes that a controller of workloads would be as fast as the controller of namespaces.
func wantNoController(t *testing.T, c *kubernetes.Clientset) {
	t.Helper()
	ctx := t.Context()
	if _, err := c.AppsV1().Deployments("default").Create(ctx, deployment(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "passing"}}
	if _, err := c.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.CoreV1().Namespaces().Delete(ctx, space.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	err := await(ctx, func(ctx context.Context) error {
		list, err := c.CoreV1().Namespaces().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + space.Name})
		if err == nil && len(list.Items) > 0 {
			err = errors.New("it is still there")
		}
		return err
	})
	if err != nil {
		t.Errorf("A hub must be kept clean: %v", err)
	}
	sets, err := c.AppsV1().ReplicaSets("").List(ctx, metav1.ListOptions{})
	if err != nil || len(sets.Items) > 0 {
		t.Errorf("A hub must not run what it is to hand on: got %v, %v", sets, err)
	}
}

func deployment() *appsv1.Deployment {
	labels, replicas := map[string]string{"app": "web"}, int32(3)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}
}

func client(t *testing.T, c Cluster) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1 // With the default limit, creating two hundred objects would take most of a minute.
	out, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// wantNoProcess checks that all components in dir have ended. The kernel may need a moment.
func wantNoProcess(t *testing.T, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		left := processesOf(t, dir)
		if left == nil {
			return
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			t.Errorf("Nothing may be left behind: got the processes %v", left)
			return
		}
	}
}

// kill kills a component whose environment has dir as HOME.
func kill(t *testing.T, dir, component string) {
	t.Helper()
	for _, pid := range processesOf(t, dir) {
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			t.Fatal(err)
		}
		name, _, _ := strings.Cut(string(args), "\x00")
		if filepath.Base(name) != component {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("There is no %s to kill in %s.", component, dir)
}

// processesOf returns the processes whose HOME is dir or a folder in it. These are the components of the playground.
func processesOf(t *testing.T, dir string) []int {
	t.Helper()
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, file := range environments {
		environ, err := os.ReadFile(file)
		if err != nil {
			continue // The process has ended or belongs to another user.
		}
		in := func(v string) bool { return strings.HasPrefix(v+"/", "HOME="+dir+"/") }
		if pid, err := strconv.Atoi(strings.Split(file, "/")[2]); err == nil && slices.ContainsFunc(strings.Split(string(environ), "\x00"), in) {
			out = append(out, pid)
		}
	}
	return out
}
