package injection

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// follow calls the function see for each object of the list's type in the namespace, and then for each change and
// deletion, in order and without gaps. It ends with the test, or when stop is called.
func (s *scene) follow(list client.ObjectList, see func(o client.Object, gone bool)) (stop func()) {
	s.Helper()
	s.must(s.api.List(s.Context(), list, client.InNamespace(s.ns)))
	s.must(meta.EachListItem(list, func(o runtime.Object) error {
		see(o.(client.Object), false)
		return nil
	}))
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	w, err := s.api.Watch(ctx, list, &client.ListOptions{Namespace: s.ns, Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
	s.must(err)
	var done sync.WaitGroup
	done.Go(func() {
		for e := range w.ResultChan() {
			o, ok := e.Object.(client.Object)
			if ctx.Err() != nil {
				return // The end of ctx causes an event, too.
			}
			if !ok || e.Type == watch.Error {
				s.Errorf("Watching %T: %s %s", list, e.Type, inJSON(e.Object))
				return
			}
			see(o, e.Type == watch.Deleted)
		}
		if ctx.Err() == nil {
			s.Errorf("Watching %T ended early", list)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		w.Stop()
		done.Wait()
	})
	s.Cleanup(stop)
	return stop
}

// readiness counts the pods of each app that are ready and not being deleted.
type readiness struct {
	mu     sync.Mutex
	ready  map[string]map[string]bool // By app and name.
	fewest map[string]int
}

func (s *scene) readiness() *readiness {
	s.Helper()
	r := &readiness{ready: map[string]map[string]bool{}, fewest: map[string]int{}}
	listed := false
	see := func(o client.Object, gone bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		app := o.GetLabels()["app"]
		if r.ready[app] == nil {
			r.ready[app] = map[string]bool{}
		}
		delete(r.ready[app], o.GetName())
		if !gone && ready(o.(*corev1.Pod)) {
			r.ready[app][o.GetName()] = true
		}
		if n, ok := r.fewest[app]; listed && (!ok || n > len(r.ready[app])) {
			r.fewest[app] = len(r.ready[app])
		}
	}
	s.follow(&corev1.PodList{}, see)
	r.mu.Lock()
	defer r.mu.Unlock()
	listed = true
	for app, pods := range r.ready {
		r.fewest[app] = len(pods)
	}
	return r
}

// least returns the smallest number of pods of an app that were ready at the same time.
func (r *readiness) least(app string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fewest[app]
}

func ready(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// moment is the state of a workload at one time.
type moment struct {
	version  int64 // The resource version of the object, which orders objects of all types.
	workload string
	rolls    bool
}

// rolling records the times at which each workload rolls out.
type rolling struct {
	mu  sync.Mutex
	all []moment
}

// rolling observes Deployments, StatefulSets and DaemonSets of the namespace.
func (s *scene) rolling() *rolling {
	s.Helper()
	r := &rolling{}
	see := func(o client.Object, gone bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		version, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
		if err != nil {
			s.Error(err)
		}
		r.all = append(r.all, moment{version, nameOf(o), !gone && !complete(o)})
	}
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &appsv1.StatefulSetList{}, &appsv1.DaemonSetList{}} {
		s.follow(list, see)
	}
	return r
}

// nameOf returns KIND/NAME.
func nameOf(o client.Object) string {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1.")
	return kind + "/" + o.GetName()
}

// complete reports whether all pods of a workload come from its current template and are available.
func complete(o client.Object) bool {
	switch w := o.(type) {
	case *appsv1.Deployment:
		n, s := *w.Spec.Replicas, &w.Status
		return s.ObservedGeneration == w.Generation && s.UpdatedReplicas == n && s.Replicas == n && s.AvailableReplicas == n
	case *appsv1.StatefulSet:
		n, s := *w.Spec.Replicas, &w.Status
		return s.ObservedGeneration == w.Generation && s.Replicas == n && s.AvailableReplicas == n && s.CurrentRevision == s.UpdateRevision
	case *appsv1.DaemonSet:
		n, s := w.Status.DesiredNumberScheduled, &w.Status
		return s.ObservedGeneration == w.Generation && s.UpdatedNumberScheduled == n && s.NumberAvailable == n
	}
	return false
}

// most returns the workloads in the order in which they began to roll out, and the largest number of workloads that
// rolled out at the same time: in total, and until the first one was complete.
func (r *rolling) most(among func(workload string) bool) (began []string, most, first int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.all, func(a, b moment) int { return cmp.Compare(a.version, b.version) })
	now := map[string]bool{}
	alone := true
	for _, m := range r.all {
		if !among(m.workload) {
			continue
		}
		if m.rolls {
			now[m.workload] = true
			if !slices.Contains(began, m.workload) {
				began = append(began, m.workload)
			}
		} else if now[m.workload] {
			delete(now, m.workload)
			alone = false
		}
		most = max(most, len(now))
		if alone {
			first = max(first, len(now))
		}
	}
	return began, most, first
}
