package podtemplate

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Reference names an object, in the namespace of a workload, that the workload's pods require.
type Reference struct {
	// Group is the API group of the object's type. It is empty, the core group.
	Group string
	// Kind is one of ConfigMap, PersistentVolumeClaim, Secret and ServiceAccount.
	Kind string
	// Resource is the plural name of the type, as in a URL.
	Resource string
	// Name is never empty.
	Name string
}

// Objects that exist in every namespace of every cluster, and are therefore not references.
const (
	defaultServiceAccount = "default"
	rootCertificates      = "kube-root-ca.crt" // A ConfigMap.
)

// References returns the ConfigMaps, PersistentVolumeClaims, Secrets and ServiceAccounts that the pod template of obj
// names, each once, ordered by kind and name. It omits the objects that exist in every namespace (the ServiceAccount
// "default" and the ConfigMap "kube-root-ca.crt"), and the claims that a StatefulSet creates from its
// volumeClaimTemplates.
//
// References reads all references of a PodSpec: volumes of every type, variables and sources of variables of all
// containers, image pull secrets and the ServiceAccount. It does not read the references of the ServiceAccount itself.
//
// Besides [Kinds], a ReplicaSet, a ReplicationController and a PodTemplate have a pod template here. Other kinds have
// no references. If the template is malformed, References returns those references that can be read. It neither retains
// nor modifies obj.
func References(obj *unstructured.Unstructured) []Reference {
	var out []Reference
	for _, u := range Uses(obj) {
		out = append(out, u.Reference)
	}
	return slices.Compact(out)
}

// Use is one kind of reference from a pod template to an object.
type Use struct {
	Reference
	// As is the part of the object that pods see: [All], or [Key] followed by the key of a single value. Pods see no
	// part of an object that is used as [Pull], [Driver] or [Other].
	As string
}

// The values of Use.As.
const (
	All    = "all"    // The whole object, as a volume or as variables.
	Key    = "key "   // One value; the key follows.
	Pull   = "pull"   // The kubelet pulls images with it.
	Driver = "driver" // The driver of a volume gets it.
	Other  = ""       // A claim or a ServiceAccount.
)

// Uses returns the objects of [References] with all their uses, each use once, ordered like References and then by As.
func Uses(obj *unstructured.Unstructured) []Use {
	spec := podSpec(obj.Object)
	if spec == nil {
		return nil
	}
	var r uses
	account := text(spec, "serviceAccountName")
	if account == "" {
		account = text(spec, "serviceAccount") // The deprecated name; the API server copies each field to the other.
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

// uses collects uses.
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

// addVolume reads all members of a volume. A valid volume has a name and one type.
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

// addFiles adds an object that is mounted as files: all keys, or the listed ones.
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

// objects yields the elements of a list that are objects.
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

// object returns a member that is an object; otherwise nil.
func object(in map[string]any, key string) map[string]any {
	o, _ := in[key].(map[string]any)
	return o
}

// text returns a member that is a string; otherwise "".
func text(in map[string]any, key string) string {
	s, _ := in[key].(string)
	return s
}
