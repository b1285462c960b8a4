package main

const (
	v1alpha1 = "pizzas.v1alpha1.restaurant.programming-kubernetes.info"
	v1beta1  = "pizzas.v1beta1.restaurant.programming-kubernetes.info"
	crd      = "crd/pizzas.restaurant.programming-kubernetes.info"
)

// scene is a part of the story.
type scene struct {
	title string
	// text is printed before the acts.
	text string
	acts []act
}

// act is one event. Exactly one of its fields other than wants and fails is set.
type act struct {
	// types is a command that is printed and run, followed by its output.
	types string
	// awaits is a command that is repeated, without being printed, until its output contains wants.
	awaits string
	// serves starts the webhook, or stops it if it is running.
	serves bool
	// stores is the name of a pizza whose content in etcd is printed.
	stores string
	// says is a text between commands.
	says string

	// wants is a text that the output must contain.
	wants string
	// fails is whether the command must fail.
	fails bool
}

// shown reports whether the reader sees the act.
func (a act) shown() bool { return a.types != "" || a.stores != "" }

// story is the story of the chapter, continued up to the removal of the first version.
var story = []scene{
	{
		title: "Two versions, and nothing that converts",
		text:  "A definition with two versions of a pizza. In v1alpha1 a topping is a name, in v1beta1 a name and a quantity.",
		acts: []act{
			{types: "kubectl create namespace pizza-crd", wants: "created"},
			{types: "kubectl config set-context --current --namespace=pizza-crd", wants: "modified"},
			{types: "kubectl apply -k manifests/crds", wants: "pizzas.restaurant.programming-kubernetes.info created"},
			{types: "kubectl wait --for=condition=Established " + crd + " crd/toppings.restaurant.programming-kubernetes.info", wants: "condition met"},
			{awaits: "kubectl get pizzas,toppings", wants: "No resources found"},
			{types: "cat objects/margherita-pizza.yaml", wants: "- mozzarella"},
			{types: "kubectl create -f objects/margherita-pizza.yaml", wants: "margherita created"},
			{awaits: "kubectl get pizza margherita -o yaml", wants: "restaurant.programming-kubernetes.info/v1beta1"},
			{types: "kubectl get pizza margherita -o yaml", wants: "  - mozzarella\n  - tomato\n"},
			{says: "v1beta1 is preferred over v1alpha1, but the toppings are still names: the same object under another\n" +
				"name, which is clearly not what we want. This can be known before:"},
			{types: "refract crd check -f manifests/crds/pizza-crd.yaml", wants: "the conversion strategy is None", fails: true},
		},
	},
	{
		title: "A webhook that converts",
		text:  "The webhook serves on this machine now. It issues its own certificate, and has the API server trust it.",
		acts: []act{
			{serves: true},
			{types: "kubectl apply -k manifests/playground/conversion", wants: "pizzas.restaurant.programming-kubernetes.info configured"},
			{awaits: "kubectl get " + v1beta1 + " margherita -o yaml", wants: "quantity: 1"},
			{types: "kubectl get " + v1alpha1 + " margherita -o yaml", wants: "  - mozzarella\n  - tomato\n"},
			{types: "kubectl get " + v1beta1 + " margherita -o yaml", wants: "  - name: mozzarella\n    quantity: 1\n"},
			{says: "One object, in the words of either version. What lies in etcd is v1alpha1, the storage version:"},
			{stores: "margherita", wants: `"toppings":["mozzarella","tomato"]`},
		},
	},
	{
		title: "Unknown fields",
		text:  "This topping has a color, which no schema knows.",
		acts: []act{
			{types: "kubectl create -f objects/topping-salami-with-unknown-fields.yaml", wants: `unknown field "spec.color"`, fails: true},
			{says: "kubectl is strict today. Who only wants to be warned gets the rest stored:"},
			{types: "kubectl create -f objects/topping-salami-with-unknown-fields.yaml --validate=warn", wants: "Warning: unknown field"},
			{types: "kubectl get topping salami -o jsonpath='{.spec}{\"\\n\"}'", wants: `{"cost":1.2}`},
		},
	},
	{
		title: "A restaurant that knows what it has",
		text:  "Two more endpoints of the same webhook: one gives pizzas toppings, one refuses them.",
		acts: []act{
			{types: "kubectl delete pizza margherita", wants: "deleted"},
			{types: "kubectl apply -k manifests/playground/admission", wants: "created"},
			{awaits: "kubectl create -f objects/margherita-pizza.yaml --dry-run=server", wants: "not known"},
			{types: "kubectl create -f objects/margherita-pizza.yaml", wants: `denied the request: topping "mozzarella" not known`, fails: true},
			{
				types: "kubectl create -f objects/topping-tomato.yaml -f objects/topping-mozzarella.yaml",
				wants: "topping.restaurant.programming-kubernetes.info/mozzarella created",
			},
			{types: "kubectl create -f objects/margherita-pizza.yaml", wants: "margherita created"},
			{says: "A pizza without toppings gets what the restaurant recommends:"},
			{types: "cat objects/empty-pizza.yaml", wants: "spec:"},
			{types: "kubectl create -f objects/empty-pizza.yaml", wants: "salami created"},
			{
				types: "kubectl get pizza salami -o yaml",
				wants: "  - name: tomato\n    quantity: 1\n  - name: mozzarella\n    quantity: 1\n  - name: salami\n    quantity: 1\n",
			},
		},
	},
	{
		title: "Extra cheese, and too much of it",
		acts: []act{
			{
				types: `kubectl patch ` + v1beta1 + ` margherita --type=json -p='[{"op":"replace","path":"/spec/toppings/0/quantity","value":2}]'`,
				wants: "patched",
			},
			{types: "kubectl get " + v1alpha1 + " margherita -o jsonpath='{.spec.toppings}{\"\\n\"}'", wants: `["mozzarella","mozzarella","tomato"]`},
			{
				types: `kubectl patch ` + v1beta1 + ` margherita --type=json -p='[{"op":"replace","path":"/spec/toppings/0/quantity","value":1000000000}]'`,
				wants: "should be less than or equal to 1000", fails: true,
			},
		},
	},
	{
		title: "A webhook that is away",
		text:  "The webhook is stopped. Stored objects can still be read in their stored version.",
		acts: []act{
			{serves: true},
			{types: "kubectl get " + v1beta1 + " margherita -o jsonpath='{.spec.toppings}{\"\\n\"}'", wants: "conversion webhook for", fails: true},
			{types: "kubectl get " + v1alpha1 + " margherita -o jsonpath='{.spec.toppings}{\"\\n\"}'", wants: `["mozzarella","mozzarella","tomato"]`},
			{says: "It serves again, and nothing else has to be done:"},
			{serves: true},
			{types: "kubectl get " + v1beta1 + " margherita -o jsonpath='{.spec.toppings}{\"\\n\"}'", wants: `"quantity":2`},
		},
	},
	{
		title: "The first version goes",
		text:  "v1beta1 becomes the storage version. Older objects must be rewritten before v1alpha1 can go.",
		acts: []act{
			{
				types: `kubectl patch ` + crd + ` --type=json -p='[{"op":"replace","path":"/spec/versions/0/storage","value":false},` +
					`{"op":"replace","path":"/spec/versions/1/storage","value":true}]'`,
				wants: "patched",
			},
			{types: "kubectl get " + crd + " -o jsonpath='{.status.storedVersions}{\"\\n\"}'", wants: `["v1alpha1","v1beta1"]`},
			{
				types: `kubectl patch ` + crd + ` --type=json -p='[{"op":"remove","path":"/spec/versions/0"}]'`,
				wants: "must remain in spec.versions until a storage migration", fails: true,
			},
			{types: "refract crd migrate pizzas.restaurant.programming-kubernetes.info --to v1beta1 --yes", wants: "v1beta1"},
			{types: "kubectl get " + crd + " -o jsonpath='{.status.storedVersions}{\"\\n\"}'", wants: `["v1beta1"]`},
			{stores: "margherita", wants: `"quantity":2`},
			{types: `kubectl patch ` + crd + ` --type=json -p='[{"op":"remove","path":"/spec/versions/0"}]'`, wants: "patched"},
			{types: "kubectl get pizzas", wants: "margherita"},
		},
	},
}
