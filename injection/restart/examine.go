package restart

import (
	"bytes"
	"maps"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"refract.dev/injection/inject"
	"refract.dev/internal/rescue"
)

// verdict is the state of a pod for one policy that selects it.
type verdict struct {
	policy          string
	state           inject.State
	reason, message string
}

// podStatus is the state of pods for the policies of their namespace. Pods with equal states share one podStatus,
// because there may be thousands of pods and hundreds of policies for each.
type podStatus struct {
	verdicts []verdict
	// hash is the hash that a new pod would have instead.
	hash string
}

// examined is the cached status of a pod that has the content lean.
type examined struct {
	lean   []byte
	status *podStatus
}

// prospect is the injection to expect in the workload's new pods.
type prospect struct {
	lean []byte // The content of the workload that the prospect was computed from.
	// hash is the expected Result.Hash. holds has the policies that will apply. If both are unknown, problem is the
	// reason.
	hash    string
	holds   map[string]bool
	problem string
}

// examiner examines the pods and workloads of one namespace. It caches each result until the content of the object or
// the policies change. It compares contents and not versions or generations, because a cluster that is restored from a
// backup uses the same versions again. It is not safe for concurrent use.
type examiner struct {
	set       *inject.Set
	log       logr.Logger
	pods      map[types.UID]examined
	prospects map[types.UID]prospect
	alike     map[string]*podStatus
}

// begin prepares the examiner for the current policies of the namespace.
func (e *examiner) begin(set *inject.Set, log logr.Logger) {
	if e.set == set && e.pods != nil {
		return
	}
	*e = examiner{set: set, log: log, pods: map[types.UID]examined{}, prospects: map[types.UID]prospect{}, alike: map[string]*podStatus{}}
}

// examine returns the status of the pod for the policies; nil if no policy selects it.
func (e *examiner) examine(p *pod) *podStatus {
	known, ok := e.pods[p.uid]
	if !ok || !bytes.Equal(known.lean, p.lean) {
		known.status = e.share(e.look(p))
	}
	e.pods[p.uid] = examined{p.lean, known.status} // Only the newest content is kept.
	return known.status
}

// look examines a pod without the cache. If Refract panics, every policy counts as skipped for the pod.
func (e *examiner) look(p *pod) *podStatus {
	x, err := func() (_ *inject.Examination, err error) {
		defer rescue.To(&err, e.log, "examining a pod", "namespace", p.namespace, "pod", p.name)
		return e.set.Examine(p.lean)
	}()
	switch {
	case rescue.Is(err):
		s := &podStatus{}
		for _, policy := range e.set.Policies() {
			s.verdicts = append(s.verdicts, verdict{policy.Name(), inject.StateSkipped, reasonInternal, err.Error()})
		}
		return s
	case err != nil:
		return &podStatus{} // The pod is not valid, so no policy can apply to it.
	}
	s := &podStatus{hash: x.Hash, verdicts: make([]verdict, 0, len(x.Statuses))}
	for i := range x.Statuses {
		to := &x.Statuses[i]
		s.verdicts = append(s.verdicts, verdict{to.Policy.Name(), to.State, to.Reason, to.Message})
	}
	return s
}

// share returns the shared status that is equal to s. It returns nil if no policy selects the pod.
func (e *examiner) share(s *podStatus) *podStatus {
	if len(s.verdicts) == 0 {
		return nil
	}
	var key strings.Builder
	key.WriteString(s.hash)
	for _, v := range s.verdicts {
		key.WriteString("\x00" + v.policy + "\x00" + string(v.state) + "\x00" + v.reason + "\x00" + v.message)
	}
	if known := e.alike[key.String()]; known != nil {
		return known
	}
	e.alike[key.String()] = s
	return s
}

// prospect returns the expected injection of the workload's new pods.
func (e *examiner) prospect(w *workload) prospect {
	if known, ok := e.prospects[w.uid]; ok && bytes.Equal(known.lean, w.lean) {
		return known
	}
	p := prospect{lean: w.lean, holds: map[string]bool{}}
	result, err := func() (_ *inject.Result, err error) {
		defer rescue.To(&err, e.log, "foreseeing the pods of a workload", "namespace", w.namespace, "workload", w.ref.String())
		return e.set.Inject(w.lean)
	}()
	switch {
	case err != nil:
		p.problem = err.Error()
	case result.Rejected != nil:
		p.problem = "policy " + result.Rejected.Policy.Name() + " rejects its pods: " + result.Rejected.Message
	default:
		p.hash = result.Hash
		for i := range result.Applied {
			p.holds[result.Applied[i].Policy.Name()] = true
		}
	}
	e.prospects[w.uid] = p
	return p
}

// forget drops the results for deleted pods and workloads.
func (e *examiner) forget(pods, workloads map[types.UID]bool) {
	for uid := range e.pods {
		if !pods[uid] {
			delete(e.pods, uid)
		}
	}
	for uid := range e.prospects {
		if !workloads[uid] {
			delete(e.prospects, uid)
		}
	}
	if len(e.alike) <= 2*len(e.pods)+100 {
		return
	}
	used := map[*podStatus]bool{}
	for _, x := range e.pods {
		used[x.status] = true
	}
	maps.DeleteFunc(e.alike, func(_ string, s *podStatus) bool { return !used[s] })
}
