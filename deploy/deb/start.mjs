// `sandbar up` runs this file. In a checkout it installs the node modules first; the package has them.
import '../packages/service/src/main.ts';
