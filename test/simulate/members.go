package simulate

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	validation "k8s.io/apimachinery/pkg/util/validation/field"

	"refract.dev/test/apiserver"
)

// Lab has the properties in which a cluster differs from other clusters.
type Lab struct {
	// StorageClass is the default class.
	StorageClass string
	// Kubeconfig is true if the Secret on the hub contains a kubeconfig; see credentials.go.
	Kubeconfig bool
	tokens     tokens
	// front answers requests instead of the API server; nil without a front.
	front *front
	// Workloads is true if the cluster has the controllers of Deployments, Jobs and autoscalers.
	Workloads bool
	// Claims is the number of PersistentVolumeClaims that a ResourceQuota allows in a namespace; 0 for no quota.
	Claims int
	// Forbids is a prefix of image tags. PodSecurity rejects pods with such images; "" for none.
	Forbids string
	// Sidecar is true if a webhook adds a label, an annotation and a container to workloads.
	Sidecar bool
	// Ailments are the current faults of some types.
	Ailments []ailment
	// Crashes is true while pods of Deployments do not become ready.
	Crashes bool
	// Load is the number of replicas that autoscalers want.
	Load int64

	served
	then served // The types at the time of the backup.
}

// served describes the types that a cluster serves.
type served struct {
	// Autoscaling is true if the group autoscaling is served.
	Autoscaling bool
	// Widgets is the number of served versions of Widgets.
	Widgets int
}

// newLab chooses the properties of the i-th cluster.
func (w *World) newLab(i int) Lab {
	lab := Lab{
		StorageClass: []string{"ssd", "gp3", "standard"}[i], Workloads: true, served: served{true, 1}, Load: int64(1 + w.Rand.IntN(5)),
	}
	switch (i + w.Rand.IntN(2)) % 3 { //nolint:mnd // As many as clusters.
	case 0:
		lab.Sidecar, lab.Widgets = true, 2
	case 1:
		lab.Claims, lab.Forbids, lab.Autoscaling = 1, "9", false
	default:
		lab.Workloads, lab.Widgets, lab.Kubeconfig = w.Rand.IntN(2) == 0, w.Rand.IntN(3), true
	}
	w.firstToken(&lab, clusterNames[i])
	return lab
}

// types returns the types that the cluster serves.
func (l *Lab) types() (all []apiserver.Type) {
	for _, t := range builtIn() {
		if l.Autoscaling || t.GVR.Group != kindScaler.Group {
			all = append(all, t)
		}
	}
	return append(all, widgetTypes()[l.Widgets]...)
}

// typesOf returns the types that a cluster serves, including those for injection.
func (w *World) typesOf(c *Cluster) []apiserver.Type {
	all := c.Lab.types()
	if w.injection != nil && c == w.injection.at {
		all = append(all, injectionTypes(all)...)
	}
	return all
}

// admitOnMember makes a cluster reject writes according to its policies.
func (w *World) admitOnMember(c *Cluster) {
	c.Server.Admit(func(write apiserver.Write) *statusError {
		if write.After == nil || write.Subresource != "" || write.After.GetDeletionTimestamp() != nil {
			return nil
		}
		for _, a := range c.Lab.Ailments {
			if a.malady.write != nil && a.GroupVersionResource.GroupResource() == write.GVR.GroupResource() {
				return a.malady.write(a.kind, write)
			}
		}
		if c.Lab.Claims > 0 && write.Before == nil && write.GVR == kindClaim.GroupVersionResource {
			there := 0
			for _, o := range c.Server.All(kindClaim.GroupVersionResource) {
				if o.GetNamespace() == write.Namespace {
					there++
				}
			}
			if there >= c.Lab.Claims {
				return forbidden(write,
					fmt.Sprintf("exceeded quota: claims, requested: persistentvolumeclaims=1, "+
						"used: persistentvolumeclaims=%d, limited: persistentvolumeclaims=%d",
						there, c.Lab.Claims))
			}
		}
		return nil
	})
}

// missingRight returns Kubernetes' error for a missing right.
func missingRight(k kind, verb, where string) *statusError {
	return apierrors.NewForbidden(k.GroupVersionResource.GroupResource(), "",
		fmt.Errorf("%s \"refract\" cannot %s resource \"%s\" in API group \"%s\" %s", "User", verb, k.Resource, k.Group, where))
}

// ailment is a fault that affects one API type on one cluster.
type ailment struct {
	kind
	malady *malady
}

// malady is a kind of fault that an API type can have.
type malady struct {
	name string
	// tells and ends are the texts with which a story describes the beginning and the end of the fault. They have a
	// placeholder for the type.
	tells, ends string
	// write returns the error for a valid write. all returns the error for any request of Refract, and is called first.
	write func(k kind, w apiserver.Write) *statusError
	all   func(k kind, r *http.Request) *statusError
}

// rightToList is a malady that prevents Refract from finding copies of a type. Refract tries again after about ten minutes.
const rightToList = "right to list"

// maladies are the faults that Refract distinguishes. Their messages are those of Kubernetes.
//
//nolint:gochecknoglobals // It is a constant.
var maladies = []malady{
	{
		name: "webhook", tells: "the admission webhook for %ss stops to answer: writes fail", ends: "the admission webhook for %ss answers again",
		write: func(kind, apiserver.Write) *statusError {
			return apierrors.NewInternalError(errors.New(
				"failed calling webhook \"sidecar.example.com\": failed to call webhook: " +
					"Post \"https://sidecar.mesh.svc:443/mutate?timeout=10s\": context deadline exceeded"))
		},
	},
	{
		name: "denial", tells: "a policy engine begins to refuse writes of %ss", ends: "the policy engine allows writes of %ss again",
		write: func(_ kind, w apiserver.Write) *statusError {
			return apierrors.NewForbidden(w.GVR.GroupResource(), w.Name,
				errors.New("admission webhook \"policies.example.com\" denied the request: it needs the label owner"))
		},
	},
	{
		name: "validation", tells: "a new validation begins to refuse writes of %ss as invalid", ends: "the new validation of %ss is taken back",
		write: func(k kind, w apiserver.Write) *statusError {
			return apierrors.NewInvalid(k.GroupVersion().WithKind(k.name).GroupKind(), w.Name,
				validation.ErrorList{validation.Forbidden(validation.NewPath("spec"), "not in this cluster")})
		},
	},
	{
		name: "size", tells: "etcd begins to refuse writes of %ss as too large", ends: "etcd takes writes of %ss again",
		write: func(kind, apiserver.Write) *statusError {
			return apierrors.NewRequestEntityTooLargeError("limit is 3145728")
		},
	},
	{
		name: "rights", tells: "the right to write %ss is taken from Refract", ends: "Refract has the right to write %ss again",
		all: func(k kind, r *http.Request) *statusError {
			if !writes(r.Method) {
				return nil
			}
			return missingRight(k, "patch", "in the namespace \"shop\"")
		},
	},
	{
		name: rightToList, tells: "the right to list and watch %ss is taken from Refract",
		ends: "Refract has the right to list and watch %ss again",
		all: func(k kind, r *http.Request) *statusError {
			if writes(r.Method) {
				return nil
			}
			return missingRight(k, "list", "at the cluster scope")
		},
	},
	{
		name: "conversion", tells: "the conversion webhook for %ss stops to answer: reads and writes fail",
		ends: "the conversion webhook for %ss answers again",
		all: func(k kind, _ *http.Request) *statusError {
			return apierrors.NewInternalError(fmt.Errorf(
				"conversion webhook for %s, Kind=%s failed: Post \"https://convert.shop.svc:443/?timeout=30s\": context deadline exceeded",
				k.GroupVersion(), k.name))
		},
	},
	{
		name: "service", tells: "the API service of %ss is unavailable",
		ends: "the API service of %ss is available again",
		all:  func(kind, *http.Request) *statusError { return apierrors.NewServiceUnavailable("service unavailable") },
	},
}

// refused returns the error of a cluster for a request of Refract, because of invalid credentials or a fault of the
// type. It returns nil if there is no error.
func (w *World) refused(t *Target, r *http.Request) *metav1.Status {
	if t == w.Hub {
		return w.withheld(r)
	}
	for _, c := range w.Clusters {
		if &c.Target != t {
			continue
		}
		if strings.HasPrefix(r.UserAgent(), "refract/injector-") {
			return nil // The injectors use another account.
		}
		if !c.Lab.tokens.accept(r.Header.Get("Authorization"), time.Now().Add(c.Skew)) {
			return &apierrors.NewUnauthorized("Unauthorized").ErrStatus
		}
		for _, a := range c.Lab.Ailments {
			if a.malady.all == nil || !slices.Contains(strings.Split(r.URL.Path, "/"), a.Resource) {
				continue
			}
			if err := a.malady.all(a.kind, r); err != nil {
				return &err.ErrStatus
			}
		}
	}
	return nil
}

// reviews is the path for questions about the client's own rights.
const reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

// reviewed returns the response of a cluster to a review of Refract's own rights, or nil for other requests.
func (w *World) reviewed(t *Target, r *http.Request, body []byte) *apiserver.Answer {
	review := &authorizationv1.SelfSubjectAccessReview{}
	if t == w.Hub || r.URL.Path != reviews || json.Unmarshal(body, review) != nil || review.Spec.ResourceAttributes == nil {
		return nil
	}
	asked := review.Spec.ResourceAttributes
	try := &http.Request{Method: http.MethodPatch}
	if slices.Contains([]string{"get", "list", "watch"}, asked.Verb) {
		try.Method = http.MethodGet
	}
	review.Status.Allowed = true
	for _, c := range w.Clusters {
		for _, a := range c.Lab.Ailments {
			if &c.Target == t && a.malady.all != nil && a.GroupVersionResource.GroupResource() == (schema.GroupResource{Group: asked.Group, Resource: asked.Resource}) {
				if err := a.malady.all(a.kind, try); err != nil && apierrors.IsForbidden(err) {
					review.Status.Allowed = false
				}
			}
		}
	}
	return &apiserver.Answer{Code: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: encoded(review)}
}

// move is a possible next action of a controller of an API server.
type move struct {
	actor, text string
	do          func() error
}

// controllersRun runs the controllers of the hub and of all clusters until they are idle.
func (w *World) controllersRun() {
	const most = 1000 // More indicate a loop of the models.
	for range most {
		moved := false
		for _, m := range w.moves() {
			moved = m.do() == nil || moved
		}
		if !moved {
			w.injectionControllers()
			return
		}
	}
	panic("the models of controllers do not come to rest; the last: " + w.moves()[0].text)
}

// controllerMoves performs one action of a random controller.
func (w *World) controllerMoves() (actor, text string) {
	m := pick(w, w.moves())
	if m.do == nil || m.do() != nil {
		return "", ""
	}
	return m.actor, m.text
}

// moves returns all actions that are possible now.
func (w *World) moves() (all []move) {
	all = w.garbage(w.Hub)
	all = append(all, w.endings(w.Hub)...)
	for _, c := range w.Clusters {
		if c.Down {
			continue
		}
		all = append(all, w.garbage(&c.Target)...)
		all = append(all, w.endings(&c.Target)...)
		all = append(all, w.claims(c)...)
		if !c.Lab.Workloads {
			continue
		}
		all = append(all, w.deployments(c)...)
		all = append(all, w.jobs(c)...)
		all = append(all, w.others(c)...)
		all = append(all, w.services(c)...)
		all = append(all, w.scalers(c)...)
	}
	return all
}

// endings returns the actions of the namespace controller.
func (w *World) endings(t *Target) (all []move) {
	if t.Down {
		return nil
	}
	for _, ns := range t.Server.All(kindNamespace.GroupVersionResource) {
		if ns.GetDeletionTimestamp() == nil {
			continue
		}
		name := ns.GetName()
		all = append(all, move{t.Name + "'s namespace controller", "deletes what is left in Namespace " + name + ", and then it", func() error {
			before := t.Server.Version()
			t.Server.FinishNamespace(name)
			if t.Server.Version() == before {
				return errNothing
			}
			return nil
		}})
	}
	return all
}

// errNothing is the error of an action that changed nothing.
var errNothing = errors.New("nothing to do")

// builtInKinds are the kinds that have owners or are owners.
//
//nolint:gochecknoglobals // It is a constant.
var builtInKinds = []kind{
	kindDeployment, kindConfigMap, kindSecret, kindService, kindClaim, kindJob, kindScaler, kindWidget, kindStateful, kindAccount, kindCron, kindVolume,
	kindReport, kindReportGlobe, kindRevision,
}
