package simulate

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/test/apiserver"
)

// bakery is a namespace of eu-1 into whose pods Refract injects. It contains no copies of objects of the hub.
const bakery = "bakery"

// baker is a user with rights in that namespace.
const baker = "carol"

// kubernetesUser is the user name of the simulated Kubernetes controllers on eu-1.
const kubernetesUser = "kubernetes"

//nolint:gochecknoglobals // They are constants.
var (
	podKind         = kindOf("", "v1", "pods", "Pod")
	replicaSetKind  = kindOf("apps", "v1", "replicasets", "ReplicaSet")
	statefulSetKind = kindOf("apps", "v1", "statefulsets", "StatefulSet")
	daemonSetKind   = kindOf("apps", "v1", "daemonsets", "DaemonSet")
	cloneSetKind    = kindOf("apps.kruise.io", "v1alpha1", "clonesets", "CloneSet")
	budgetKind      = kindOf("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
	injectionKind   = kindOf("refract.dev", "v1beta1", "serviceinjectionpolicies", refractv1beta1.KindServiceInjectionPolicy)
	controllerKind  = kindOf("", "v1", "replicationcontrollers", "ReplicationController")
	eventKind       = kindOf("events.k8s.io", "v1", "events", "Event")

	// injectorNames are the replicas of `refract run --injection` on eu-1.
	injectorNames = []string{"injector-a", "injector-b"}
	// workloadKinds are the kinds with a pod template.
	workloadKinds = []kind{kindDeployment, statefulSetKind, daemonSetKind, replicaSetKind, cloneSetKind}
)

// injection simulates the injection on eu-1: the webhook of its API server, the controllers and kubelets of its pods,
// and the rules for restarts.
type injection struct {
	world *World
	at    *Cluster

	webhook webhook
	// made is the number of created pods, for unique names.
	made int
	// templates are the revisions of StatefulSets, by UID and revision, like those in ControllerRevisions.
	templates map[types.UID]map[string]map[string]any
	// progress is the last progress of the rollouts of Deployments.
	progress map[types.UID]progress
	// reported are the last statuses that the controllers of eu-1 wrote.
	reported map[types.UID]lastReport
	// sick are the workloads whose pods do not become ready.
	sick map[string]bool
	// examined and prospects are caches of the examinations of pods.
	examined  map[examinedKey]examinedPod
	prospects map[prospectKey]prospect

	rules *restartRules
}

// newInjection returns nil in three of four worlds: in these, eu-1 has no injection.
func (w *World) newInjection(seed uint64) *injection {
	if rand.New(rand.NewPCG(seed, 41)).IntN(4) > 0 {
		return nil
	}
	in := &injection{
		world: w, at: w.Clusters[slices.IndexFunc(w.Clusters, func(c *Cluster) bool { return c.Name == "eu-1" })],
		templates: map[types.UID]map[string]map[string]any{}, progress: map[types.UID]progress{}, reported: map[types.UID]lastReport{}, sick: map[string]bool{},
		examined: map[examinedKey]examinedPod{}, prospects: map[prospectKey]prospect{},
	}
	in.webhook.compiled = map[string]compiledPolicy{}
	in.rules = newRestartRules(in)
	return in
}

// injectionTypes returns the types that the injection needs on eu-1 and that are not in others.
func injectionTypes(others []apiserver.Type) (all []apiserver.Type) {
	want := func(t apiserver.Type) {
		if !slices.ContainsFunc(others, func(o apiserver.Type) bool { return o.GVR == t.GVR }) {
			all = append(all, t)
		}
	}
	for _, crd := range refractCRDs() {
		if crd.Spec.Names.Plural == injectionKind.Resource {
			for _, t := range apiserver.FromCRD(crd) {
				want(t)
			}
		}
	}
	for _, k := range []kind{budgetKind, controllerKind, cloneSetKind, statefulSetKind, daemonSetKind} {
		want(apiserver.Type{GVR: k.GroupVersionResource, Kind: k.name, Namespaced: true, Status: true, Generation: true})
	}
	return all
}

// beginInjection creates the namespace with its objects, and starts the replicas of `refract run --injection`.
func (w *World) beginInjection() {
	in := w.injection
	if in == nil {
		return
	}
	in.admission()
	in.at.Server.OnWrite(in.rules.written)
	in.furnish()
	w.injectionControllers()
	for _, replica := range injectorNames {
		in.start(replica)
	}
}

func (in *injection) user(name string) hand { return in.world.hand(&in.at.Target, name) }

// furnish creates the initial objects.
func (in *injection) furnish() {
	admin, carol := in.user("admin"), in.user(baker)
	for _, name := range []string{systemNamespace, bakery} {
		if admin.get(kindNamespace, "", name) == nil {
			admin.must(admin.create(object(kindNamespace, "", name, nil)))
		}
	}
	carol.must(carol.create(in.secret()))
	for _, l := range breads {
		if in.world.Rand.IntN(100) < l.often {
			carol.must(carol.create(in.newWorkload(&l)))
		}
	}
	for range 1 + in.world.Rand.IntN(2) {
		if p := in.newPolicy(); admin.get(injectionKind, bakery, p.GetName()) == nil {
			carol.must(carol.create(p))
		}
	}
	in.furnishPods(carol)
}

// secret returns the Secret that policies name.
func (in *injection) secret() *unstructured.Unstructured {
	return object(kindSecret, bakery, "db", map[string]any{"type": "Opaque", "data": map[string]any{"password": "c2VjcmV0"}})
}

// furnishPods creates a pod without a controller, and a pod of a Job.
func (in *injection) furnishPods(carol hand) {
	if in.world.Rand.IntN(2) == 0 {
		debug := podOf("debug", map[string]any{"app": "debug", "uses-database": "true"}, "registry.sim/debug:1", false)
		_ = carol.create(debug) // A policy may cause the rejection of the pod.
	}
	if in.world.Rand.IntN(2) > 0 {
		return
	}
	job := object(kindJob, bakery, "import", map[string]any{"spec": map[string]any{
		"template": podTemplate(map[string]any{"app": "import", "uses-database": "true"}, "registry.sim/import:1", true),
	}})
	if carol.create(job) != nil {
		return
	}
	if stored := carol.get(kindJob, bakery, "import"); stored != nil {
		pod := podOf("import-1", map[string]any{"app": "import", "uses-database": "true"}, "registry.sim/import:1", true)
		own(pod, kindJob, stored)
		_ = carol.create(pod) // A policy may cause the rejection of the pod.
	}
}

// owns reports whether a replica belongs to the injection.
func (in *injection) owns(replica string) bool {
	return in != nil && slices.Contains(injectorNames, replica)
}

// start starts a replica of `refract run --injection`.
func (in *injection) start(replica string) *Process {
	return in.world.launch(replica, &in.at.Target, (*Process).injects)
}

// begun starts a replica of the controllers or of the injection.
func (w *World) begun(replica string) *Process {
	if w.injection.owns(replica) {
		return w.injection.start(replica)
	}
	return w.start(replica)
}

// injectors returns the replicas of the injection in this world.
func (w *World) injectors() []string {
	if w.injection == nil {
		return nil
	}
	return injectorNames
}

// injector returns the running process of a replica, or nil.
func (in *injection) injector(replica string) *Process {
	for _, p := range in.world.Processes {
		if p.Replica == replica && p.Running() {
			return p
		}
	}
	return nil
}

// mendInjection ends all faults: the webhook answers again, and pods become ready. Changes by users remain.
func (w *World) mendInjection() {
	if in := w.injection; in != nil {
		in.webhook.down, in.webhook.behind, in.webhook.full = false, nil, false
		clear(in.sick)
		in.rules.observe()
	}
}

// bread is a possible workload.
type bread struct {
	kind
	object string
	often  int
	fields map[string]any
}

// breads are the possible workloads of the bakery: a few of each kind.
//
//nolint:gochecknoglobals // It is a constant.
var breads = []bread{
	{kindDeployment, "web", 95, map[string]any{"replicas": 3, "strategy": rolling(1, 0)}},
	{kindDeployment, "api", 80, map[string]any{"replicas": 2, "strategy": rolling(0, 1)}},
	{kindDeployment, "cart", 60, map[string]any{"replicas": 2, "strategy": rolling(1, 1)}},
	{statefulSetKind, "queue", 70, map[string]any{"replicas": 2, "serviceName": "queue", "updateStrategy": map[string]any{"type": "RollingUpdate"}}},
	{daemonSetKind, "agent", 40, map[string]any{"updateStrategy": map[string]any{"type": "RollingUpdate"}}},
	{replicaSetKind, "oven", 50, map[string]any{"replicas": 2}},
	{cloneSetKind, "mill", 30, map[string]any{"replicas": 2}},
}

func rolling(surge, unavailable int) map[string]any {
	return map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": surge, "maxUnavailable": unavailable}}
}

// newWorkload returns the first version of a workload.
func (in *injection) newWorkload(b *bread) *unstructured.Unstructured {
	labels := map[string]any{"app": b.object}
	for _, use := range []string{"uses-database", "uses-cache"} {
		if in.world.Rand.IntN(4) > 0 {
			labels[use] = "true"
		}
	}
	spec := map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{"app": b.object}},
		"template": podTemplate(labels, "registry.sim/"+b.object+":1", false),
	}
	maps.Copy(spec, b.fields)
	return object(b.kind, bakery, b.object, anything(map[string]any{"spec": spec}))
}

// podTemplate returns the template of a workload.
func podTemplate(labels map[string]any, image string, ends bool) map[string]any {
	restart := "Always"
	if ends {
		restart = "Never"
	}
	return anything(map[string]any{
		"metadata": map[string]any{"labels": labels},
		"spec": map[string]any{
			"restartPolicy": restart,
			"containers":    []any{map[string]any{"name": "main", "image": image, "env": []any{map[string]any{"name": "NAME", "value": "bakery"}}}},
		},
	})
}

func podOf(name string, labels map[string]any, image string, ends bool) *unstructured.Unstructured {
	return podFrom(podTemplate(labels, image, ends), name)
}

// podFrom returns a pod from a template.
func podFrom(template map[string]any, name string) *unstructured.Unstructured {
	copied := anything(template)
	o := object(podKind, bakery, name, nil)
	if from, ok := copied["metadata"].(map[string]any); ok {
		meta, _ := o.Object["metadata"].(map[string]any)
		for _, key := range []string{"labels", "annotations"} {
			if value, ok := from[key]; ok {
				meta[key] = value
			}
		}
	}
	o.Object["spec"] = copied["spec"]
	if name != "" {
		put(o, "node-1", "spec", "nodeName")
	}
	return o
}

// own makes one object the controller of another.
func own(o *unstructured.Unstructured, k kind, owner *unstructured.Unstructured) {
	o.Object["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{ //nolint:forcetypeassert // object makes it.
		"apiVersion": k.GroupVersion().String(), "kind": k.name, "name": owner.GetName(), "uid": string(owner.GetUID()),
		"controller": true, "blockOwnerDeletion": true,
	}}
}

// number returns a number of an object, or 0.
func number(o *unstructured.Unstructured, path ...string) int64 {
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	switch v := v.(type) {
	case int64:
		return v
	case float64:
		return int64(v)
	default:
		return 0
	}
}

// textOf returns a string of an object, or "".
func textOf(o *unstructured.Unstructured, path ...string) string {
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	s, _ := v.(string)
	return s
}

// part returns a nested object, or nil. The caller must not modify it.
func part(o *unstructured.Unstructured, path ...string) map[string]any {
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	m, _ := v.(map[string]any)
	return m
}

// replicasOf returns the intended number of pods of a workload.
func replicasOf(o *unstructured.Unstructured) int64 {
	if o.GetKind() == daemonSetKind.name {
		return bakeryNodes
	}
	if _, found, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "replicas"); !found {
		return 1
	}
	return number(o, "spec", "replicas")
}

// templateHash returns the annotation on the template of a workload that Refract changes to restart its pods.
func templateHash(o *unstructured.Unstructured) string {
	return textOf(o, "spec", "template", "metadata", "annotations", refractv1beta1.HashAnnotation)
}

// workloads returns the existing workloads, sorted by kind and name, without the ReplicaSets of Deployments.
func (in *injection) workloads() (all []*unstructured.Unstructured) {
	for _, k := range workloadKinds {
		for _, o := range in.all(k) {
			if k.name != replicaSetKind.name || len(o.GetOwnerReferences()) == 0 {
				all = append(all, o)
			}
		}
	}
	return all
}

// all returns the objects of a kind in the bakery. The caller must not modify them.
func (in *injection) all(k kind) (objects []*unstructured.Unstructured) {
	for _, o := range in.at.Server.All(k.GroupVersionResource) {
		if o.GetNamespace() == bakery {
			objects = append(objects, o)
		}
	}
	slices.SortFunc(objects, func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	return objects
}

// kindNamed returns the workload kind with this name.
func kindNamed(name string) kind {
	i := slices.IndexFunc(workloadKinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		panic(fmt.Sprintf("no kind of workloads is named %s", name))
	}
	return workloadKinds[i]
}
