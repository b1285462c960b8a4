package podtemplate

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Reference names an object, in the namespace of a workload, that the
// workload's pods cannot do without.
type Reference struct {
	// Group is the API group of the object's type: empty, the core group.
	Group string
	// Kind is one of ConfigMap, PersistentVolumeClaim, Secret and ServiceAccount.
	Kind string
	// Resource is the plural name of the type, as in a URL.
	Resource string
	// Name is never empty.
	Name string
}

// What is in every namespace of every cluster by itself, and so need not be
// brought there.
const (
	defaultServiceAccount = "default"
	rootCertificates      = "kube-root-ca.crt" // A ConfigMap.
)

// References returns the ConfigMaps, PersistentVolumeClaims, Secrets and
// ServiceAccounts that the pod template of obj names, each once, ordered by kind
// and name. Those that every namespace has by itself, the ServiceAccount
// "default" and the ConfigMap "kube-root-ca.crt", are not among them, nor are the
// claims that a StatefulSet makes from its volumeClaimTemplates.
//
// The places are all that a PodSpec has: volumes of every type, variables and
// sources of variables of every sort of container, pull secrets and the account.
// What a ServiceAccount names in turn is not looked for.
//
// Besides [Kinds], a ReplicaSet, a ReplicationController and a PodTemplate have a
// pod template here. Any other kind has no references. Of a template that is not
// well formed, what can be read is returned. It keeps and changes nothing of obj.
func References(obj *unstructured.Unstructured) []Reference {
	var out []Reference
	for _, u := range Uses(obj) {
		out = append(out, u.Reference)
	}
	return slices.Compact(out)
}

// Use is a way in which a pod template refers to an object.
type Use struct {
	Reference
	// As is what pods see of the object by it: [All], or the key of a single value after
	// [Key]. A name in another way, as [Pull] and [Driver] are, shows them nothing.
	As string
}

// What a [Use] may be as.
const (
	All    = "all"    // Everything in it, as a volume or as variables.
	Key    = "key "   // And the key.
	Pull   = "pull"   // The kubelet pulls images with it.
	Driver = "driver" // The driver of a volume is given it.
	Other  = ""       // A claim or an account.
)

// Uses returns what [References] does, each with every way in which the pod template
// refers to it: once, and ordered by As behind the rest.
func Uses(obj *unstructured.Unstructured) []Use {
	spec := podSpec(obj.Object)
	if spec == nil {
		return nil
	}
	var r uses
	account := text(spec, "serviceAccountName")
	if account == "" {
		account = text(spec, "serviceAccount") // Its old name; the API server copies one to the other.
	}
	if account != defaultServiceAccount {
		r.add("ServiceAccount", account, Other)
	}
	for pull := range objects(spec, "imagePullSecrets") {
		r.add(secret, text(pull, "name"), Pull)
	}
	for _, list := range [...]string{"initContainers", "containers", "ephemeralContainers"} {
		for container := range objects(spec, list) {
			r.addContainer(container)
		}
	}
	for volume := range objects(spec, "volumes") {
		r.addVolume(volume)
	}
	slices.SortFunc(r, func(a, b Use) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name), strings.Compare(a.As, b.As))
	})
	return slices.Compact(r)
}

// podSpec returns the spec in the pod template of an object, or nil.
func podSpec(root map[string]any) map[string]any {
	version, _ := root["apiVersion"].(string)
	group, _, grouped := strings.Cut(version, "/")
	if !grouped {
		group = ""
	}
	spec := object(root, "spec")
	switch group + "/" + text(root, "kind") {
	case "/Pod":
		return spec
	case "/PodTemplate":
		return object(object(root, "template"), "spec")
	case "apps/Deployment", "apps/StatefulSet", "apps/DaemonSet", "apps/ReplicaSet", "batch/Job", "/ReplicationController":
		return object(object(spec, "template"), "spec")
	case "batch/CronJob":
		job := object(object(spec, "jobTemplate"), "spec")
		return object(object(job, "template"), "spec")
	default:
		return nil
	}
}

// uses is a list in the making.
type uses []Use

const (
	configMap = "ConfigMap"
	secret    = "Secret"
)

func (r *uses) add(kind, name, as string) {
	if name == "" || kind == configMap && name == rootCertificates {
		return
	}
	*r = append(*r, Use{Reference{Kind: kind, Resource: resources[kind], Name: name}, as})
}

var resources = map[string]string{
	configMap: "configmaps", secret: "secrets",
	"PersistentVolumeClaim": "persistentvolumeclaims", "ServiceAccount": "serviceaccounts",
}

func (r *uses) addContainer(container map[string]any) {
	for variable := range objects(container, "env") {
		from := object(variable, "valueFrom")
		for kind, ref := range map[string]map[string]any{configMap: object(from, "configMapKeyRef"), secret: object(from, "secretKeyRef")} {
			r.add(kind, text(ref, "name"), Key+text(ref, "key"))
		}
	}
	for from := range objects(container, "envFrom") {
		r.add(configMap, text(object(from, "configMapRef"), "name"), All)
		r.add(secret, text(object(from, "secretRef"), "name"), All)
	}
}

// addVolume looks at what the volume has: one type and a name, if it is valid.
func (r *uses) addVolume(volume map[string]any) {
	for key, v := range volume {
		source, _ := v.(map[string]any)
		switch key {
		case "configMap":
			r.addFiles(configMap, text(source, "name"), source)
		case "secret":
			r.addFiles(secret, text(source, "secretName"), source)
		case "azureFile":
			r.add(secret, text(source, "secretName"), Driver)
		case "persistentVolumeClaim":
			r.add("PersistentVolumeClaim", text(source, "claimName"), Other)
		case "projected":
			for projection := range objects(source, "sources") {
				for kind, some := range map[string]map[string]any{configMap: object(projection, "configMap"), secret: object(projection, "secret")} {
					r.addFiles(kind, text(some, "name"), some)
				}
			}
		case "csi":
			r.add(secret, text(object(source, "nodePublishSecretRef"), "name"), Driver)
		case "cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos":
			r.add(secret, text(object(source, "secretRef"), "name"), Driver)
		}
	}
}

// addFiles adds what is mounted as files: all keys, or those that are listed.
func (r *uses) addFiles(kind, name string, source map[string]any) {
	listed := false
	for item := range objects(source, "items") {
		listed = true
		r.add(kind, name, Key+text(item, "key"))
	}
	if !listed {
		r.add(kind, name, All)
	}
}

// objects yields the members of a list that are objects.
func objects(in map[string]any, key string) func(yield func(map[string]any) bool) {
	return func(yield func(map[string]any) bool) {
		list, _ := in[key].([]any)
		for _, v := range list {
			if o, ok := v.(map[string]any); ok && !yield(o) {
				return
			}
		}
	}
}

// object returns the member if it is an object, or nil.
func object(in map[string]any, key string) map[string]any {
	o, _ := in[key].(map[string]any)
	return o
}

// text returns the member if it is a string, or "".
func text(in map[string]any, key string) string {
	s, _ := in[key].(string)
	return s
}
