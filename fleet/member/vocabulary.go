package member

import "strings"

// vocabulary are the words that API servers, admission webhooks and conditions use in their sentences.
var vocabulary = wordsOf(`
a about accept accepted access account act actual add added admission after again all allow allowed allows already also am an and another any
anymore api apply applied array as at attempting attempted available away
base be because become been before begin being below between bigger body boolean both but by bytes
call called calling can cannot change changed changes characters chars check checked child client cluster code combination come condition conditions
configuration
conflict conflicts connect connection contain contains content context controller conversion convert converted could count create created creating
creation currently
data date days deadline decode decoded default defaulted defined definition delete deleted deleting deletion denied denies deny depend depends
deprecated destination
did different dial disabled do does doesn't don't done dropped due duplicate duplicated during
each either element elements else empty enabled end ended endpoint endpoints entries entry enum equal equals error errors evaluate evaluated
evaluation exactly exceed exceeded exceeds
except exclusive existing exist exists expect expected expired explicitly expression external
fail failed failing fails failure false field fields file find finished first float follow following for forbidden format found from full function
generation get gets give given go got grant greater group groups
had has have having held host hosts how hours
id identifier if ignored immutable in include included incorrect index initial initialized inside instance instead int integer integers internal
invalid is isn't it item items its
json just
keep key keys kind known
label labels large larger last later latest least left length less lesser level like limit limits limited list lists load long longer lookup lost
lower lowercase
made make malformed manager managers many map mapping match matched matches matching max maximum may message metadata method min minimum minutes
missing mode modified more most multiple must mutually
name named names namespace namespaces need needed needs never new next no node nodes none nor not nothing now null number numbers numeric
object objects observed occurred of off old older on once one ones only open operation operator optional or order original other others otherwise out
outside over own owned owner
parameter parameters parse parsed parsing part patch path paths pattern pending perform permission permissions permitted places please plural policy
port positive possible preconditions
prefix present prevent previous probably process processing progress progressing prohibited properties property provide provided provider
query quota
range rather rbac reach reached read reader ready reason received reconcile reconciled reconciling record reference referenced references refers
refused regex rejected reject related release remain remaining remove removed
replace replaced replica replicas request requested requests require required requires reserved resolve resolved resource resources resolver response
result results retry return returned role roles root rule rules run running
same satisfied satisfy schema schemas scope second seconds see select selected selector send sent separated server service serve served set sets
should shouldn't single size small smaller some specified specification
specify spec start started starting state status still stopped stored storage string strings structural structure struct subject subresource succeed
succeeded such suffix supplied support supported supports syncing synced
take taken tag target template terminated terminating text than that the their them then there these they this those through time timed timeout times
timestamp to too true try trying twice type typed types
unable unavailable unchanged under unexpected unique unit unknown unless unmarshal unmarshalling unprocessable unreachable unready unsupported until
up update updated updates updating uppercase url use used user users uses using
valid validate validated validating validation validations value values verify version versions via violated violates violation
wait waiting want wanted warning was we webhook were what when where whether which while who whole will with within without would write written wrong
yaml yes yet you your zero
`)

func wordsOf(text string) map[string]bool {
	words := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		words[word] = true
	}
	return words
}
