package rollout

import (
	"maps"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"refract.dev/inject"
	"refract.dev/internal/rescue"
)

// verdict is the state of a pod for one policy that selects it.
type verdict struct {
	policy          string
	state           inject.State
	reason, message string
}

// podStatus is the state of pods for the policies of their namespace. Pods with the same
// share one: there may be thousands, each with hundreds of policies.
type podStatus struct {
	verdicts []verdict
	// hash is that of a pod that would be created now.
	hash string
}

// examined is the status of one version of a pod.
type examined struct {
	version string
	status  *podStatus
}

// prospect is what the pods of a workload will be like.
type prospect struct {
	generation int64
	// hash is what Result.Hash will be, and holds are the policies that will hold; a
	// problem is why that is not known.
	hash    string
	holds   map[string]bool
	problem string
}

// examiner remembers what was found out about the pods and workloads of one
// namespace for as long as they and the policies stay the same. It is not safe for
// several goroutines.
type examiner struct {
	set       *inject.Set
	log       logr.Logger
	pods      map[types.UID]examined
	prospects map[types.UID]prospect
	alike     map[string]*podStatus
}

// begin prepares for a look at the namespace with these policies.
func (e *examiner) begin(set *inject.Set, log logr.Logger) {
	if e.set == set && e.pods != nil {
		return
	}
	*e = examiner{set: set, log: log, pods: map[types.UID]examined{}, prospects: map[types.UID]prospect{}, alike: map[string]*podStatus{}}
}

// examine returns the status of the pod for the policies; nil if none selects it.
func (e *examiner) examine(p *pod) *podStatus {
	if known, ok := e.pods[p.uid]; ok && known.version == p.version {
		return known.status
	}
	found := e.share(e.look(p))
	e.pods[p.uid] = examined{p.version, found}
	return found
}

// look examines a pod. For one over which Refract panics every policy is left out.
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
		return &podStatus{} // It is no pod that any policy could be about.
	}
	s := &podStatus{hash: x.Hash, verdicts: make([]verdict, 0, len(x.Statuses))}
	for i := range x.Statuses {
		to := &x.Statuses[i]
		s.verdicts = append(s.verdicts, verdict{to.Policy.Name(), to.State, to.Reason, to.Message})
	}
	return s
}

// share returns the one status for all that are like it.
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

// prospect returns what the workload's pods will be like.
func (e *examiner) prospect(w *workload) prospect {
	if known, ok := e.prospects[w.uid]; ok && known.generation == w.generation {
		return known
	}
	p := prospect{generation: w.generation, holds: map[string]bool{}}
	result, err := func() (_ *inject.Result, err error) {
		defer rescue.To(&err, e.log, "foreseeing the pods of a workload", "namespace", w.namespace, "workload", w.ref.String())
		return e.set.Inject(w.lean)
	}()
	switch {
	case err != nil:
		p.problem = err.Error()
	case result.Rejected != nil:
		p.problem = "policy " + result.Rejected.Policy.Name() + " has its pods refused: " + result.Rejected.Message
	default:
		p.hash = result.Hash
		for i := range result.Applied {
			p.holds[result.Applied[i].Policy.Name()] = true
		}
	}
	e.prospects[w.uid] = p
	return p
}

// forget drops what is known of pods and workloads that are deleted.
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
