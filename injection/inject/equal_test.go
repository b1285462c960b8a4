package inject

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestSameItem compares items of a policy with items of a pod.
func TestSameItem(t *testing.T) {
	cases := map[string]struct {
		reason string
		kind   itemKind
		// policy is the item of a policy; same and different are items of a pod.
		policy          string
		same, different []string
	}{
		"EnvValue": {
			reason: "A variable without a value has the empty value.", kind: envItem,
			policy: `{name: A}`, same: []string{`{name: A, value: ""}`, `{name: A, value: null, valueFrom: null}`},
			different: []string{`{name: A, value: x}`, `{name: A, valueFrom: {fieldRef: {fieldPath: x}}}`, `{name: A, future: true}`},
		},
		"EnvFieldRef": {
			reason: "SetDefaults_ObjectFieldSelector sets the apiVersion.", kind: envItem,
			policy: `{name: A, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}`,
			same:   []string{`{name: A, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: spec.nodeName}}}`, `{name: A, value: "", valueFrom: {fieldRef: {fieldPath: spec.nodeName}, secretKeyRef: null}}`},
			different: []string{
				`{name: A, valueFrom: {fieldRef: {apiVersion: v2, fieldPath: spec.nodeName}}}`, `{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}`,
			},
		},
		"EnvSecret": {
			reason: "optional: false equals an absent optional, and differs from true.", kind: envItem,
			policy: `{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}`, same: []string{`{name: A, valueFrom: {secretKeyRef: {name: s, key: k, optional: false}}}`},
			different: []string{`{name: A, valueFrom: {secretKeyRef: {name: s, key: k, optional: true}}}`, `{name: A, valueFrom: {configMapKeyRef: {name: s, key: k}}}`},
		},
		"EnvFile": {
			reason: "The field optional of a file defaults to false.", kind: envItem,
			policy: `{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: k}}}`, same: []string{`{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: k, optional: false}}}`},
			different: []string{`{name: A, valueFrom: {fileKeyRef: {volumeName: w, path: p, key: k}}}`},
		},
		"EnvResource": {
			reason: "An absent divisor is 1, and divisors are quantities.", kind: envItem,
			policy: `{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}`,
			same:   []string{`{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: "0"}}}`, `{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1000m, containerName: ""}}}`, `{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1}}}`},
			different: []string{
				`{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}`, `{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, containerName: c}}}`,
			},
		},
		"EnvFrom": {
			reason: "An absent prefix is the empty prefix.", kind: envFromItem,
			policy: `{secretRef: {name: s}}`, same: []string{`{prefix: "", secretRef: {name: s, optional: false}, configMapRef: null}`},
			different: []string{`{secretRef: {name: s, optional: true}}`, `{prefix: P, secretRef: {name: s}}`},
		},
		"Mount": {
			reason: "Paths are cleaned, and absent fields have a defined meaning.", kind: mountItem,
			policy: `{name: v, mountPath: /a/b/}`,
			same:   []string{`{name: v, mountPath: /a//b, readOnly: false, subPath: "", mountPropagation: None, recursiveReadOnly: Disabled}`},
			different: []string{
				`{name: w, mountPath: /a/b}`, `{name: v, mountPath: /a/b, readOnly: true}`, `{name: v, mountPath: /a/b, subPath: s}`,
				`{name: v, mountPath: /a/b, mountPropagation: Bidirectional}`, `{name: v, mountPath: /a/b, recursiveReadOnly: IfPossible}`,
			},
		},
		"EmptyDir": {
			reason: "A size limit is a quantity, and an absent medium is the default one.", kind: volumeItem,
			policy:    `{name: v, emptyDir: {sizeLimit: 1Gi}}`,
			same:      []string{`{name: v, emptyDir: {sizeLimit: 1024Mi, medium: ""}}`, `{name: v, emptyDir: {sizeLimit: "1073741824"}, secret: null}`},
			different: []string{`{name: v, emptyDir: {}}`, `{name: v, emptyDir: {sizeLimit: 1G}}`, `{name: v, emptyDir: {sizeLimit: 1Gi, medium: Memory}}`, `{name: v, hostPath: {path: /}}`},
		},
		"NoSource": {
			reason: "SetDefaults_Volume: a volume without a source is an emptyDir.", kind: volumeItem,
			policy: `{name: v, emptyDir: {}}`, same: []string{`{name: v}`, `{name: v, hostPath: null}`}, different: []string{`{name: v, future: {}}`},
		},
		"HostPath": {
			reason: "SetDefaults_HostPathVolumeSource sets the type.", kind: volumeItem,
			policy: `{name: v, hostPath: {path: /x}}`, same: []string{`{name: v, hostPath: {path: /x, type: ""}}`}, different: []string{`{name: v, hostPath: {path: /x, type: Directory}}`},
		},
		"Secret": {
			reason: "SetDefaults_SecretVolumeSource sets the mode. A mode of 0 is not absent, also in an item.", kind: volumeItem,
			policy: `{name: v, secret: {secretName: s, items: [{key: k, path: p}]}}`,
			same:   []string{`{name: v, secret: {secretName: s, defaultMode: 420, optional: false, items: [{key: k, path: p}]}}`},
			different: []string{
				`{name: v, secret: {secretName: s, defaultMode: 0, items: [{key: k, path: p}]}}`, `{name: v, secret: {secretName: s, items: [{key: k, path: p, mode: 0}]}}`,
				`{name: v, secret: {secretName: s}}`, `{name: v, secret: {secretName: s, items: [{key: k, path: p}], optional: true}}`,
			},
		},
		"ConfigMap": {
			reason: "SetDefaults_ConfigMapVolumeSource sets the mode.", kind: volumeItem,
			policy: `{name: v, configMap: {name: c, defaultMode: 420}}`, same: []string{`{name: v, configMap: {name: c, items: []}}`}, different: []string{`{name: v, configMap: {name: c, defaultMode: 256}}`},
		},
		"DownwardAPI": {
			reason: "SetDefaults_DownwardAPIVolumeSource and SetDefaults_ObjectFieldSelector set defaults.", kind: volumeItem,
			policy: `{name: v, downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.labels}}, {path: q, resourceFieldRef: {containerName: c, resource: limits.cpu}}]}}`,
			same: []string{
				`{name: v, downwardAPI: {defaultMode: 420, items: [{path: p, fieldRef: {apiVersion: v1, fieldPath: metadata.labels}}, {path: q, resourceFieldRef: {containerName: c, resource: limits.cpu, divisor: "0"}}]}}`,
			},
			different: []string{`{name: v, downwardAPI: {defaultMode: 420}}`},
		},
		"Projected": {
			reason: "SetDefaults_ProjectedVolumeSource and SetDefaults_ServiceAccountTokenProjection set defaults. The sources have no modes of their own.", kind: volumeItem,
			policy: `{name: v, projected: {sources: [{serviceAccountToken: {path: t}}, {downwardAPI: {items: [{path: p, fieldRef: {fieldPath: f}}]}}, {secret: {name: s}}]}}`,
			same: []string{
				`{name: v, projected: {defaultMode: 420, sources: [{serviceAccountToken: {path: t, expirationSeconds: 3600, audience: ""}},
				 {downwardAPI: {items: [{path: p, fieldRef: {apiVersion: v1, fieldPath: f}}]}}, {secret: {name: s, optional: false}}]}}`,
			},
			different: []string{`{name: v, projected: {sources: [{serviceAccountToken: {path: t, expirationSeconds: 600}}, {downwardAPI: {items: [{path: p, fieldRef: {fieldPath: f}}]}}, {secret: {name: s}}]}}`},
		},
		"TrustBundle": {
			reason: "An empty selector selects all objects, an absent one selects none.", kind: volumeItem,
			policy: `{name: v, projected: {sources: [{clusterTrustBundle: {signerName: s, labelSelector: {}, path: p}}]}}`,
			same:   []string{`{name: v, projected: {sources: [{clusterTrustBundle: {signerName: s, labelSelector: {matchLabels: {}}, path: p, optional: false}}]}}`}, different: []string{`{name: v, projected: {sources: [{clusterTrustBundle: {signerName: s, path: p}}]}}`},
		},
		"ISCSI": {
			reason: "The interface has a default, and an absent lun is 0.", kind: volumeItem,
			policy: `{name: v, iscsi: {targetPortal: t, iqn: i, lun: 0}}`, same: []string{`{name: v, iscsi: {targetPortal: t, iqn: i, iscsiInterface: default}}`}, different: []string{`{name: v, iscsi: {targetPortal: t, iqn: i, lun: 1}}`},
		},
		"RBD": {
			reason: "Pool, user and keyring have defaults.", kind: volumeItem,
			policy: `{name: v, rbd: {monitors: [m], image: i}}`, same: []string{`{name: v, rbd: {monitors: [m], image: i, pool: rbd, user: admin, keyring: /etc/ceph/keyring}}`}, different: []string{`{name: v, rbd: {monitors: [m], image: i, pool: other}}`},
		},
		"AzureDisk": {
			reason: "All fields except those of the disk have defaults.", kind: volumeItem,
			policy: `{name: v, azureDisk: {diskName: d, diskURI: u}}`, same: []string{`{name: v, azureDisk: {diskName: d, diskURI: u, cachingMode: ReadWrite, fsType: ext4, readOnly: false, kind: Shared}}`}, different: []string{`{name: v, azureDisk: {diskName: d, diskURI: u, readOnly: true}}`},
		},
		"ScaleIO": {
			reason: "Mode and file system have defaults.", kind: volumeItem,
			policy: `{name: v, scaleIO: {gateway: g, system: s, secretRef: {name: key}}}`, same: []string{`{name: v, scaleIO: {gateway: g, system: s, secretRef: {name: key}, storageMode: ThinProvisioned, fsType: xfs}}`}, different: []string{`{name: v, scaleIO: {gateway: g, system: s, secretRef: {name: key}, fsType: ext4}}`},
		},
		"Ephemeral": {
			reason: "SetDefaults_PersistentVolumeClaimSpec: resources are rounded up, and an empty class differs from an absent one.", kind: volumeItem,
			policy: `{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: "1.0001"}}}}}}`,
			same: []string{
				`{name: v, ephemeral: {volumeClaimTemplate: {metadata: {creationTimestamp: null}, spec: {accessModes: [ReadWriteOnce], volumeMode: Filesystem, resources: {requests: {storage: 1001m}, limits: {}}}}}}`,
			},
			different: []string{
				`{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: "", resources: {requests: {storage: "1.0001"}}}}}}`,
				`{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], volumeMode: Block, resources: {requests: {storage: "1.0001"}}}}}}`,
			},
		},
		"ImageLatest": {
			reason: "SetDefaults_Volume: an image with the tag latest is always pulled.", kind: volumeItem,
			policy: `{name: v, image: {reference: "registry:5000/a/b"}}`, same: []string{`{name: v, image: {reference: "registry:5000/a/b", pullPolicy: Always}}`}, different: []string{`{name: v, image: {reference: "registry:5000/a/b", pullPolicy: IfNotPresent}}`},
		},
		"ImageTagged": {
			reason: "SetDefaults_Volume: an image with another tag is not always pulled.", kind: volumeItem,
			policy: `{name: v, image: {reference: "a:v1"}}`, same: []string{`{name: v, image: {reference: "a:v1", pullPolicy: IfNotPresent}}`}, different: []string{`{name: v, image: {reference: "a:v1", pullPolicy: Never}}`},
		},
		"ImageDigest": {
			reason: "SetDefaults_Volume: an image with a digest is not always pulled.", kind: volumeItem,
			policy: `{name: v, image: {reference: "a@sha256:0123"}}`, same: []string{`{name: v, image: {reference: "a@sha256:0123", pullPolicy: IfNotPresent}}`},
		},
		"CSI": {
			reason: "The values of attributes are strings, which may be empty.", kind: volumeItem,
			policy: `{name: v, csi: {driver: d, volumeAttributes: {a: ""}}}`, same: []string{`{name: v, csi: {driver: d, readOnly: false, volumeAttributes: {a: ""}}}`}, different: []string{`{name: v, csi: {driver: d}}`, `{name: v, csi: {driver: d, volumeAttributes: {a: "", b: ""}}}`},
		},
		"GCE": {
			reason: "A partition of 0 is an absent partition.", kind: volumeItem,
			policy: `{name: v, gcePersistentDisk: {pdName: p}}`, same: []string{`{name: v, gcePersistentDisk: {pdName: p, partition: 0, fsType: "", readOnly: false}}`}, different: []string{`{name: v, gcePersistentDisk: {pdName: p, partition: 1}}`},
		},
		"FC": {
			reason: "A lun of 0 differs from an absent lun.", kind: volumeItem,
			policy: `{name: v, fc: {targetWWNs: [w], lun: 0}}`, different: []string{`{name: v, fc: {targetWWNs: [w]}}`},
		},
		"Unknown": {
			reason: "Unknown fields are compared unchanged.", kind: volumeItem,
			policy: `{name: v, emptyDir: {}, future: {a: 0, b: ""}}`, same: []string{`{future: {b: "", a: 0}, emptyDir: {}, name: v}`}, different: []string{`{name: v, emptyDir: {}, future: {a: 0}}`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			it := &item{raw: mustJSON(t, tc.policy)}
			it.normal = normalize(tc.kind, decode(it.raw))
			for _, text := range append(tc.same, tc.policy) {
				if raw := mustJSON(t, text); !(&entry{raw: raw}).same(tc.kind, it) {
					t.Errorf("%s\n%s is another thing than %s:\n%s", tc.reason, text, tc.policy, cmp.Diff(it.normal, normalize(tc.kind, decode(raw))))
				}
			}
			for _, text := range tc.different {
				if (&entry{raw: mustJSON(t, text)}).same(tc.kind, it) {
					t.Errorf("%s\n%s is the same as %s", tc.reason, text, tc.policy)
				}
			}
		})
	}
}

func mustJSON(t *testing.T, text string) []byte {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestNormalizeTwice: a normalized item is its own normal form, and normalize does not modify its argument.
func TestNormalizeTwice(t *testing.T) {
	for kind, list := range map[itemKind][]string{envItem: someEnv, envFromItem: someEnvFrom, volumeItem: someVolumes, mountItem: someMounts} {
		for _, text := range list {
			value := decode(mustJSON(t, text))
			once := normalize(kind, value)
			if diff := cmp.Diff(once, normalize(kind, once)); diff != "" {
				t.Errorf("%s: -once, +twice:\n%s", text, diff)
			}
			if diff := cmp.Diff(decode(mustJSON(t, text)), value); diff != "" {
				t.Errorf("%s was changed: -before, +after:\n%s", text, diff)
			}
		}
	}
}

// TestNormalizeAnything: normalize accepts values of any shape, also invalid items.
func TestNormalizeAnything(t *testing.T) {
	for _, text := range []string{
		`[]`, `1`, `{name: 1, valueFrom: x}`, `{valueFrom: {fieldRef: [], resourceFieldRef: {divisor: {}}}}`,
		`{secret: 1, projected: {sources: {}}, emptyDir: {sizeLimit: x}, ephemeral: {volumeClaimTemplate: {spec: {resources: {limits: []}}}}}`,
		`{downwardAPI: {items: [1, {fieldRef: x}]}, image: {reference: 1}}`, `{mountPath: 1}`,
	} {
		for _, kind := range []itemKind{envItem, envFromItem, volumeItem, mountItem} {
			value := decode(mustJSON(t, text))
			if !equal(normalize(kind, value), normalize(kind, value)) {
				t.Errorf("%s is not itself", text)
			}
		}
	}
}
